/* What a tool of the tests was told: a line "+name" or "-" for each range that began or ended. It
   is written to the file that OPKIT_TEST_RANGES names, with the tool's name behind, when the
   process ends. */
#ifndef OPKIT_TESTS_PROFILE_TOOLS_RECORD_H_
#define OPKIT_TESTS_PROFILE_TOOLS_RECORD_H_

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char record[1 << 20];
static size_t length;

static void add(const char* sign, const char* name) {
  pthread_mutex_lock(&mutex);
  if (length + strlen(name) + 3 < sizeof record)
    length += (size_t)sprintf(record + length, "%s%s\n", sign, name);
  pthread_mutex_unlock(&mutex);
}
const char* tool_record(void) { return record; }

__attribute__((destructor)) static void write_record(void) {
  const char* folder = getenv("OPKIT_TEST_RANGES");
  char path[4096];
  FILE* file;
  if (!folder) return;
  snprintf(path, sizeof path, "%s/%s", folder, TOOL);
  file = fopen(path, "w");
  if (!file) return;
  fwrite(record, 1, length, file);
  fclose(file);
}

#endif
