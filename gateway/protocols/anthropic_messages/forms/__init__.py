"""How single things are written in the Messages protocol and in the chat form: thoughts, media, ids, counts, ends."""
