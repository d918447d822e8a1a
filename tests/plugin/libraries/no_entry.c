/* A shared object that is no library of operators. */
int no_entry_answer(void);
int no_entry_answer(void) { return 42; }
