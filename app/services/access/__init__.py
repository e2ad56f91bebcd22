"""Who may call: tokens, their uses, sessions of browsers."""
