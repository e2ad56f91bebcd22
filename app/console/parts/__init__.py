"""Parts of pages: plots, lines of time, programs to paste, numbers and times in words."""
