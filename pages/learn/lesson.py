"""The lesson: short steps, one idea each, on the teaching task; guess first, then see what the model does."""

from bba.ui.lesson import page

page.lesson()
