// Memory plans as text: rows `id,lower,upper,size` in, the same with `,offset` out. The form of the
// public benchmark instances, so that input and output can be exchanged with other planners.
#ifndef OPKIT_GRAPH_PRINT_MEMORY_CSV_HPP_
#define OPKIT_GRAPH_PRINT_MEMORY_CSV_HPP_

#include <string>
#include <string_view>

#include "opkit/graph/memory/types.hpp"

namespace opkit::inline OPKIT_ABI {

struct MemoryTable {
  std::vector<std::string> ids;
  std::vector<MemoryInterval> buffers;
  std::vector<int64_t> offsets;  // empty when the table has no such column
};

// Reads the text of a file, its columns in any order, with or without `offset`; ids are any text
// without a comma. Errors (kInvalidArgument) begin with the line's number.
MemoryTable ReadMemoryCsv(std::string_view text);

// `ids` may be empty: then buffers are numbered from 0. Without offsets the column is left out.
// Error (kInvalidArgument) for another number of offsets or ids than of buffers, and for an id that
// a cell cannot hold.
std::string WriteMemoryCsv(const std::vector<MemoryInterval>& buffers,
                           const std::vector<int64_t>& offsets = {},
                           const std::vector<std::string>& ids = {});

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/graph/print/impl/memory_csv.ipp"
#endif

#endif  // OPKIT_GRAPH_PRINT_MEMORY_CSV_HPP_
