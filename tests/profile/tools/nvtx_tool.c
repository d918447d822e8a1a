/* A tool that takes ranges by NVTX 3, as a profiler's injection library does. */
#define TOOL "nvtx"
#include "record.h"

typedef void (*function)(void);
struct callbacks {
  size_t struct_size;
  int (*get_module_table)(int module, function*** table, unsigned* size);
};

static int push(const char* name) {
  add("+", name);
  return 0;
}
static int pop(void) {
  add("-", "");
  return 0;
}

int InitializeInjectionNvtx2(const void* (*export_table)(unsigned)) {
  const struct callbacks* callbacks = export_table(1);
  function** table = NULL;
  unsigned size = 0;
  if (!callbacks || callbacks->struct_size < sizeof *callbacks) return 0;
  if (export_table(77) || callbacks->get_module_table(2, &table, &size)) return 0;
  if (!callbacks->get_module_table(1, &table, &size) || size < 16) return 0;
#ifndef TAKES_NO_RANGES
  *table[9] = (function)push;
  *table[11] = (function)pop;
#endif
  return 1;
}
