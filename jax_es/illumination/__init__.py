"""Repertoires: an archive of many good policies (MAP-Elites), and recovery with one."""
