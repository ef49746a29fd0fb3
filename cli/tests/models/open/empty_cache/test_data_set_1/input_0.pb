BpastJJ Ä¼ûH
¾T½¿<Qº<