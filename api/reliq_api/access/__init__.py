"""Who may call: API keys, their scopes and their rates."""
