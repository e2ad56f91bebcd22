"""Access: tokens, their uses, sessions of browsers."""
