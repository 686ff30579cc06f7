"""Training stages on the Hugging Face Trainer."""
