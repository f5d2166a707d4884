"""How a corpus is prepared: what Apache Beam runs, and what it runs it on."""
