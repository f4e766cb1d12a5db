"""Running worlds × algorithms × seeds, and showing what came out."""
