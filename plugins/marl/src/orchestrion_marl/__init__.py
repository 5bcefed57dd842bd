"""Teams of language models trained together by the reward of the whole team."""
