// Any text: an Error, or a table that is the same when it is written and read again.
#include <cstdlib>

#include "opkit/base/error.hpp"
#include "opkit/graph/print/memory_csv.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  opkit::MemoryTable table;
  try {
    table = opkit::ParseMemoryCsv({reinterpret_cast<const char*>(data), size});
  } catch (const opkit::Error&) {
    return 0;
  }
  const std::string text = opkit::ToCsv(table.buffers, table.offsets, table.ids);
  const opkit::MemoryTable again = opkit::ParseMemoryCsv(text);
  if (again.ids != table.ids || again.offsets != table.offsets ||
      opkit::ToCsv(again.buffers, again.offsets, again.ids) != text)
    std::abort();
  return 0;
}
