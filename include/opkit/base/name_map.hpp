// NameMap: values by name, in alphabetical order. Registries keep their rows in it. The functions
// of std::map are compiled again for every type of value; the search here is compiled once.
#ifndef OPKIT_BASE_NAME_MAP_HPP_
#define OPKIT_BASE_NAME_MAP_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Base class of the rows of every NameMap.
struct NamedRow {
  explicit NamedRow(std::string_view row_name) : name(row_name) {}
  const std::string name;
};
// Rows in alphabetical order, each allocated on its own. The functions below serve every NameMap.
using NamedRows = std::vector<NamedRow*>;
// Returns the place of the first row whose name is not less than `name`.
size_t LowerRow(const NamedRows& rows, std::string_view name);
// True if the row at `at` has the name; `at` may be the end.
inline bool IsRow(const NamedRows& rows, size_t at, std::string_view name) {
  return at < rows.size() && rows[at]->name == name;
}
// Returns null if no row has the name.
NamedRow* FindRow(const NamedRows& rows, std::string_view name);
// Reserves room for one more row, so that the next InsertRow does not throw.
void GrowRows(NamedRows& rows);
void InsertRow(NamedRows& rows, size_t at, NamedRow* row);
void EraseRow(NamedRows& rows, size_t at);
OPKIT_COLD std::vector<std::string> NamesOf(const NamedRows& rows);

}  // namespace detail

// A vector of pointers, sorted by name: a search takes log2(size) comparisons, an insertion moves
// the pointers behind it. References to values and names stay valid until their row is erased. Not
// synchronised.
//
//   NameMap<int> ranks;
//   ranks["eigen"] = 1;
//   if (const int* rank = ranks.Find("onednn")) …
//   for (const auto& row : ranks) Use(row.name, row.value);
template <class T>
class NameMap {
 public:
  struct Row : detail::NamedRow {
    using NamedRow::NamedRow;
    T value{};
  };
  // R is Row or const Row.
  template <class R>
  struct Iterator {
    R& operator*() const { return static_cast<R&>(**at); }
    R* operator->() const { return &**this; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;
    detail::NamedRow* const* at;
  };

  NameMap() = default;
  NameMap(NameMap&&) = delete;
  ~NameMap() {
    for (detail::NamedRow* row : rows_) delete static_cast<Row*>(row);
  }

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  Iterator<Row> begin() { return {rows_.data()}; }
  Iterator<Row> end() { return {rows_.data() + rows_.size()}; }
  Iterator<const Row> begin() const { return {rows_.data()}; }
  Iterator<const Row> end() const { return {rows_.data() + rows_.size()}; }

  // Returns null if the name has no value.
  T* Find(std::string_view name) { return ValueOf(detail::FindRow(rows_, name)); }
  const T* Find(std::string_view name) const { return ValueOf(detail::FindRow(rows_, name)); }
  bool Has(std::string_view name) const { return detail::FindRow(rows_, name); }
  // Returns the name's row; adds one with a value-initialised value if there is none.
  Row& RowOf(std::string_view name) {
    const size_t at = detail::LowerRow(rows_, name);
    if (detail::IsRow(rows_, at, name)) return static_cast<Row&>(*rows_[at]);
    detail::GrowRows(rows_);
    Row* const row = new Row(name);
    detail::InsertRow(rows_, at, row);
    return *row;
  }
  T& operator[](std::string_view name) { return RowOf(name).value; }
  // Returns false if the name has no value.
  bool Erase(std::string_view name) {
    const size_t at = detail::LowerRow(rows_, name);
    if (!detail::IsRow(rows_, at, name)) return false;
    Drop(at);
    return true;
  }
  // Erases the rows for which `is_dead(row)` is true; returns true if there were any. Calls
  // `is_dead` once for each row.
  template <class Predicate>
  bool EraseIf(Predicate is_dead) {
    const size_t before = rows_.size();
    for (size_t at = 0; at < rows_.size();)
      if (is_dead(static_cast<Row&>(*rows_[at])))
        Drop(at);
      else
        ++at;
    return rows_.size() != before;
  }
  // Returns the names in alphabetical order.
  std::vector<std::string> Names() const { return detail::NamesOf(rows_); }

 private:
  void Drop(size_t at) {
    Row* const row = static_cast<Row*>(rows_[at]);
    detail::EraseRow(rows_, at);
    delete row;
  }
  static T* ValueOf(detail::NamedRow* row) {
    return row ? &static_cast<Row*>(row)->value : nullptr;
  }

  detail::NamedRows rows_;
};

}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/name_map.ipp"
#endif

#endif  // OPKIT_BASE_NAME_MAP_HPP_
