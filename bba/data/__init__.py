"""Examples: files, named tasks and tokenizers."""
