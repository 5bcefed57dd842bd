"""Teams of language models trained together by what the team achieves."""
