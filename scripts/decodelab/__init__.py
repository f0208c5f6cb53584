"""decodelab: the library behind the steps. Nouns live here; verbs (commands) live one folder up."""
