"""Classify every row of a file: the same rows in the same order come back, with their labels."""

from bba.ui import file_rows, layout

file_rows.introduce()
choice = layout.chosen()
upload, column = file_rows.ask()
file_rows.classify(choice, upload, column, file_rows.asked(choice))
