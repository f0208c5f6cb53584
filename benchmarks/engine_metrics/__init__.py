"""Our metrics beside vLLM's own: definitions on recorded streams, figures on a live server."""
