"""A budget for each text: what a text was tried at and why it stayed, and what that saves over all texts."""

from bba.ui import input_worth, inputs, layout

choice = layout.chosen()
routing = inputs.routing(choice)
ladder = inputs.ladder(choice, routing)
inputs.one_text(choice, ladder)
inputs.many_texts(choice, ladder)
input_worth.shares(choice, routing, ladder)
input_worth.trade_off(choice, routing, ladder)
