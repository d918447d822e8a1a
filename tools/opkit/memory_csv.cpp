// The reader of memory tables, which checks every cell, and the writer.
#include "memory_csv.hpp"

#include <algorithm>
#include <charconv>

#include "opkit/base/error.hpp"
#include "opkit/base/indexed_vector.hpp"
#include "opkit/base/name_index.hpp"

namespace cli {

using namespace opkit;
using opkit::detail::IndexedVector;
using opkit::detail::NameIndex;

namespace {

// Parses one text, line by line.
class MemoryCsvReader {
 public:
  explicit MemoryCsvReader(std::string_view text) : rest_(text) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // spreadsheets write it in UTF-8
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  MemoryTable Read() {
    MemoryTable table;
    ReadHeader();
    NameIndex ids;
    while (NextLine()) {
      if (line_.empty()) continue;
      cells_ = Cells();
      if (cells_.size() != header_cells_)
        Fail("expected ", header_cells_, " cells as in the header, found ", cells_.size());
      const std::string_view id = cells_[columns_[kId]];
      if (id.find('\r') != id.npos) Fail("id '", id, "' has a carriage return inside");
      if (ids.Find(id) >= 0) Fail("id '", id, "' stands in an earlier line as well");
      ids.Add(id);
      table.ids.emplace_back(id);
      const MemoryInterval buffer{Number(kLower), Number(kUpper), Number(kSize)};
      if (buffer.lower >= buffer.upper)
        Fail("lower is ", buffer.lower, " and upper ", buffer.upper, ": expected lower < upper");
      if (buffer.size < 0) Fail("size is ", buffer.size, ": expected 0 or more");
      table.buffers.push_back(buffer);
      if (columns_[kOffset] < 0) continue;
      table.offsets.push_back(Number(kOffset));
      if (table.offsets.back() < 0)
        Fail("offset is ", table.offsets.back(), ": expected 0 or more");
    }
    return table;
  }

 private:
  enum Column { kId, kLower, kUpper, kSize, kOffset, kColumns };
  static constexpr const char* kNames[kColumns] = {"id", "lower", "upper", "size", "offset"};

  bool NextLine() {
    if (rest_.empty()) return false;
    ++number_;
    line_ = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix((std::min)(line_.size() + 1, rest_.size()));
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    return true;
  }
  std::vector<std::string_view> Cells() const {
    std::vector<std::string_view> cells;
    for (size_t at = 0; at <= line_.size(); at += cells.back().size() + 1)
      cells.push_back(line_.substr(at, line_.find(',', at) - at));
    return cells;
  }
  void ReadHeader() {
    if (!NextLine()) number_ = 1;
    const std::vector<std::string_view> cells = Cells();
    header_cells_ = cells.size();
    size_t known = 0;
    for (int column = 0; column < kColumns; ++column) {
      const auto found = std::find(cells.begin(), cells.end(), kNames[column]);
      columns_[column] = found == cells.end() ? -1 : static_cast<int>(found - cells.begin());
      known += columns_[column] >= 0;
    }
    const size_t expected = columns_[kOffset] >= 0 ? 5 : 4;
    if (known != expected || header_cells_ != expected)
      Fail("expected the columns id,lower,upper,size and perhaps offset, found '", line_, "'");
  }
  int64_t Number(Column column) const {
    const std::string_view cell = cells_[columns_[column]];
    int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size())
      Fail("expected a 64-bit integer as ", kNames[column], ", found '", cell, "'");
    return value;
  }
  template <class... Parts>
  [[noreturn]] void Fail(const Parts&... parts) const {
    Throw(ErrorCode::kInvalidArgument, "line ", number_, ": ", StrCat(parts...));
  }

  std::string_view rest_, line_;
  IndexedVector<std::string_view> cells_;  // the cells of line_
  int columns_[kColumns];                  // index of each column in a line; -1: not in the header
  size_t header_cells_ = 0;
  int number_ = 0;  // number of line_, from 1
};

}  // namespace

MemoryTable ParseMemoryCsv(std::string_view text) { return MemoryCsvReader(text).Read(); }

std::string ToCsv(const std::vector<MemoryInterval>& buffers, const std::vector<int64_t>& offsets,
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

}  // namespace cli
