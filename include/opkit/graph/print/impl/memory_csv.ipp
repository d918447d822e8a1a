// Memory plans as text: the reader, which checks every cell, and the writer.
#ifndef OPKIT_GRAPH_PRINT_IMPL_MEMORY_CSV_IPP_
#define OPKIT_GRAPH_PRINT_IMPL_MEMORY_CSV_IPP_

#include <charconv>

#include "opkit/base/error.hpp"
#include "opkit/base/name_index.hpp"
#include "opkit/graph/print/memory_csv.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class MemoryCsvReader {
 public:
  explicit MemoryCsvReader(std::string_view text) : rest_(text) {}

  MemoryTable Read() {
    MemoryTable table;
    int columns[kColumns];
    ReadHeader(columns);
    const bool with_offset = columns[kOffset] >= 0;
    while (NextLine()) {
      if (line_.empty()) continue;
      std::string_view cells[kColumns];
      const int count = Split(cells);
      if (count != header_cells_)
        Fail(StrCat("expected ", header_cells_, " cells as in the header, found ", count));
      const std::string_view id = cells[columns[kId]];
      if (ids_.Find(id) >= 0) Fail(StrCat("id '", id, "' stands in an earlier line as well"));
      ids_.Add(id);
      table.ids.emplace_back(id);
      MemoryInterval buffer;
      buffer.lower = Number(cells, columns, kLower);
      buffer.upper = Number(cells, columns, kUpper);
      buffer.size = Number(cells, columns, kSize);
      if (buffer.lower >= buffer.upper)
        Fail(StrCat("lower is ", buffer.lower, " and upper ", buffer.upper,
                    ": expected lower < upper"));
      if (buffer.size < 0) Fail(StrCat("size is ", buffer.size, ": expected 0 or more"));
      table.buffers.push_back(buffer);
      if (!with_offset) continue;
      table.offsets.push_back(Number(cells, columns, kOffset));
      if (table.offsets.back() < 0)
        Fail(StrCat("offset is ", table.offsets.back(), ": expected 0 or more"));
    }
    return table;
  }

 private:
  enum Column { kId, kLower, kUpper, kSize, kOffset, kColumns };
  static constexpr const char* kNames[kColumns] = {"id", "lower", "upper", "size", "offset"};

  bool NextLine() {
    if (rest_.empty()) return false;
    ++number_;
    const size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    return true;
  }
  // Fills in the first kColumns cells of the line; returns how many cells it has.
  int Split(std::string_view* cells) const {
    int count = 0;
    for (std::string_view rest = line_;;) {
      const size_t end = rest.find(',');
      if (count < kColumns) cells[count] = rest.substr(0, end);
      ++count;
      if (end == std::string_view::npos) return count;
      rest = rest.substr(end + 1);
    }
  }
  void ReadHeader(int* columns) {
    if (!NextLine()) number_ = 1;
    std::string_view cells[kColumns];
    header_cells_ = Split(cells);
    bool known = header_cells_ <= kColumns;
    for (int column = 0; column < kColumns; ++column) {
      columns[column] = -1;
      for (int i = 0; known && i < header_cells_; ++i)
        if (cells[i] == kNames[column]) columns[column] = i;
    }
    for (int column = 0; column < kColumns; ++column)
      known = known && (columns[column] >= 0 || column == kOffset);
    if (!known || header_cells_ != (columns[kOffset] >= 0 ? 5 : 4))
      Fail(StrCat("expected the columns id,lower,upper,size and perhaps offset, found '", line_,
                  "'"));
  }
  int64_t Number(const std::string_view* cells, const int* columns, Column column) const {
    const std::string_view cell = cells[columns[column]];
    int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size())
      Fail(StrCat("expected a 64-bit integer as ", kNames[column], ", found '", cell, "'"));
    return value;
  }
  [[noreturn]] void Fail(const std::string& why) const {
    Throw(ErrorCode::kInvalidArgument, "line ", number_, ": ", why);
  }

  std::string_view rest_, line_;
  NameIndex ids_;
  int number_ = 0;
  int header_cells_ = 0;
};

}  // namespace detail

OPKIT_INLINE MemoryTable ReadMemoryCsv(std::string_view text) {
  return detail::MemoryCsvReader(text).Read();
}

OPKIT_INLINE std::string WriteMemoryCsv(const std::vector<MemoryInterval>& buffers,
                                        const std::vector<int64_t>& offsets,
                                        const std::vector<std::string>& ids) {
  if ((!offsets.empty() && offsets.size() != buffers.size()) ||
      (!ids.empty() && ids.size() != buffers.size()))
    Throw(ErrorCode::kInvalidArgument, "expected an offset and an id for each of ", buffers.size(),
          " buffers, or none; found ", offsets.size(), " offsets and ", ids.size(), " ids");
  std::string text = offsets.empty() ? "id,lower,upper,size\n" : "id,lower,upper,size,offset\n";
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!ids.empty() && ids[i].find_first_of(",\n\r") != std::string::npos)
      Throw(ErrorCode::kInvalidArgument, "id '", ids[i], "' of buffer ", i,
            " has a comma or a line end, which a cell cannot hold");
    text += StrCat(ids.empty() ? std::to_string(i) : ids[i], ",", buffers[i].lower, ",",
                   buffers[i].upper, ",", buffers[i].size);
    if (!offsets.empty()) text += StrCat(",", offsets[i]);
    text += '\n';
  }
  return text;
}

}  // namespace opkit

#endif  // OPKIT_GRAPH_PRINT_IMPL_MEMORY_CSV_IPP_
