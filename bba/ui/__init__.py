"""The app's parts: state (the only caches), charts (values to figures), wording (sentences), and pieces of pages."""
