"""The playground: one prompt to several models side by side, over the API as any client calls it."""
