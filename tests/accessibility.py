"""What axe-core finds wrong with a page in a browser: contrast, names, roles. Shared by the browser tests."""

from axe_playwright_python.sync_playwright import Axe

SERIOUS = ("serious", "critical")
STREAMLITS = {
    # The menu's headings are <div>s between its <ul> and the links' <li>s; a page cannot change that.
    "list": "ul[data-testid=stSidebarNavItems]",
    "listitem": "ul[data-testid=stSidebarNavItems] li",
}
"""What Streamlit's own markup causes and no page can mend: rule of axe-core, and selector of the elements."""
MATCHES = "([target, selector]) => document.querySelector(target)?.matches(selector)"


def faults(page):
    """Return a line for each serious or critical finding on a page as it is now."""
    found = [each for each in Axe().run(page).response["violations"] if each["impact"] in SERIOUS]
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found
        for node in each["nodes"]
        if not _streamlits(page, each["id"], node["target"])
    ]


def _streamlits(page, rule, target):
    return rule in STREAMLITS and page.evaluate(MATCHES, [target[0], STREAMLITS[rule]])
