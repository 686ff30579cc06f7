"""Classify every row of a file: the same rows in the same order come back, with their labels."""

from bba.ui import file_rows, layout

file_rows.introduce()
file_rows.classify(layout.chosen(), *file_rows.ask())
