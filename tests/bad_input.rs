//! Bad input gets one clear line: golden files with the text, rewritten with `BLESS=1`.
