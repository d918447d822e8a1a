// Any text: an Error, or a table that is the same when it is written and read again.
#include <cstdlib>

#include "memory_csv.hpp"
#include "opkit/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cli::MemoryTable table;
  try {
    table = cli::ParseMemoryCsv({reinterpret_cast<const char*>(data), size});
  } catch (const opkit::Error&) {
    return 0;
  }
  const std::string text = cli::ToCsv(table.buffers, table.offsets, table.ids);
  const cli::MemoryTable again = cli::ParseMemoryCsv(text);
  if (again.ids != table.ids || again.offsets != table.offsets ||
      cli::ToCsv(again.buffers, again.offsets, again.ids) != text)
    std::abort();
  return 0;
}
