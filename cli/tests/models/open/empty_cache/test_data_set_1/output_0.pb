BpresentJ J Ä¼ûH
¾T½¿<Qº<6`…=íN¿™n?-1¿