// Memory plans as CSV text: reads rows `id,lower,upper,size` and writes them, with `,offset` for a
// plan. Public benchmark instances have this format, so that files can be exchanged with other
// planners.
#ifndef OPKIT_TOOLS_OPKIT_MEMORY_CSV_HPP_
#define OPKIT_TOOLS_OPKIT_MEMORY_CSV_HPP_

#include <string>
#include <string_view>

#include "opkit/graph/memory/arena.hpp"

namespace cli {

// The rows of a file, column by column.
struct MemoryTable {
  std::vector<std::string> ids;
  std::vector<opkit::MemoryInterval> buffers;
  std::vector<int64_t> offsets;  // empty if the file has no such column
};

// Parses the text of a file. Its columns may have any order, with or without `offset`; an id is any
// text without a comma. Throws kInvalidArgument; the message begins with the line number.
MemoryTable ParseMemoryCsv(std::string_view text);

// Writes the text of a file. Without `ids`, numbers the buffers from 0. Without `offsets`, omits
// the column of offsets. Throws kInvalidArgument if there are not as many offsets or ids as
// buffers, and for an id with a comma or a line end.
std::string ToCsv(const std::vector<opkit::MemoryInterval>& buffers,
                  const std::vector<int64_t>& offsets = {},
                  const std::vector<std::string>& ids = {});

}  // namespace cli

#endif  // OPKIT_TOOLS_OPKIT_MEMORY_CSV_HPP_
