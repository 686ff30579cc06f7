"""The Lesson: what a head budget is, in short steps, each with a live picture and a question to guess at."""
