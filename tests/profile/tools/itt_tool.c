/* A collector that takes tasks by the ITT API; OLD: as before version 3, which had its functions found
   by their names. */
#define TOOL "itt"
#include "record.h"

struct id {
  unsigned long long words[3];
};
struct domain {
  volatile int flags;
  const char* name;
};
struct handle {
  const char* text;
};
struct entry {
  const char* name;
  void** function;
  void *initial, *none;
  int group;
};
struct process {
  unsigned char magic[8];
  unsigned long version[3];
  volatile long initialized, mutex_initialized, counter;
  pthread_mutex_t mutex;
  void *library, *error_handler, *path;
  struct entry* entries;
};

#ifdef OLD
#define FUNCTION
#else
#define FUNCTION static
#endif
FUNCTION void __itt_task_begin(const struct domain* domain, struct id task, struct id parent,
                               const struct handle* name) {
  if (domain->flags && strcmp(domain->name, "opkit") == 0 && !task.words[0] && !parent.words[0])
    add("+", name->text);
}
FUNCTION void __itt_task_end(const struct domain* domain) { add("-", domain->flags ? "" : "off"); }

#ifndef OLD
static struct {
  struct domain head;
  void* rest[8];
} domain;
static struct domain* create_domain(const char* name) {
  domain.head.flags = 1;
  domain.head.name = name;
  return &domain.head;
}
void __itt_api_init(struct process* process, int groups) {
  struct entry* entry;
  if (process->magic[0] != 0xED || process->magic[7] != 0x30 || groups != -1) return;
  for (entry = process->entries; entry->name; ++entry) {
    if (strcmp(entry->name, "__itt_domain_create") == 0) *entry->function = (void*)create_domain;
    if (strcmp(entry->name, "__itt_task_begin") == 0) *entry->function = (void*)__itt_task_begin;
    if (strcmp(entry->name, "__itt_task_end") == 0) *entry->function = (void*)__itt_task_end;
  }
}
#endif
