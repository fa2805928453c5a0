"""The command line. Importing it sets up nothing; `main` is what `unicron` runs."""
