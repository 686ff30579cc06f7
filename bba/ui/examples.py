"""Texts to try, per task. News and encyclopedia entries are invented; the teaching task is made from a seed."""

from bba.data import synthetic

NEWS = (
    "Shares slide as oil climbs to a record high and airlines warn of thinner profits",
    "Midfielder scores twice in stoppage time to send the hosts into the cup final",
    "New telescope spots water vapour in the air of a distant rocky planet",
    "Ministers meet in Geneva to save a fragile ceasefire after a night of shelling",
    "Chip maker sues a rival over console graphics as holiday sales of games soar",
    "Olympic committee agrees record television deal with broadcaster, bank says",
)
"""The last two are hard: each stands between two classes."""
ENTRIES = (
    "Harrow & Pell is a manufacturer of bicycles that was founded in Leeds in 1931",
    "Dorvany is a village in the hills of southern Moravia with 312 inhabitants",
    "Silent Orchard is the second studio album by the folk singer Mara Lindqvist",
    "Anselm Voigt (born 4 March 1958) is a retired goalkeeper who played for three clubs",
    "The Ombra is a river that rises in the Alps and floods its marshes every spring",
    "The Lantern Keepers is about a lighthouse and its last crew, and was a success in 1987",
)
"""The last one is hard: a film or a book."""
_EXAMPLES = {"agnews": NEWS, "dbpedia14": ENTRIES}


def examples(task: str) -> list[str]:
    """Return texts to try for a task; for an unknown task none."""
    if task == synthetic.TASK:
        return [text for text, _ in synthetic.examples(6, "app/examples")]
    return list(_EXAMPLES.get(task, ()))


def synthetic_answer(text: str) -> str | None:
    """Return the true label of a text of the teaching task, or None if the text does not follow its rules."""
    words = text.split()
    asked = [word[:-1] for word in words if word.endswith("?")]
    takings = [word.split(":") for word in words if ":" in word]
    known = all(len(pair) == 2 and pair[0] in synthetic.PEOPLE and pair[1] in synthetic.THINGS for pair in takings)
    rest = [word for word in words if ":" not in word and not word.endswith("?")]
    if len(asked) != 1 or not known or any(word not in synthetic.FILLERS for word in rest):
        return None
    return next((person for person, thing in reversed(takings) if thing == asked[0]), None)
