// NameTable: objects by name, sorted, at addresses that never change. A sorted vector instead of a
// std::map: tables of names are read far more often than they grow, and every instantiation of
// std::map costs a translation unit as much as this whole folder.
#ifndef OPKIT_BASE_NAME_TABLE_HPP_
#define OPKIT_BASE_NAME_TABLE_HPP_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "opkit/config.hpp"

namespace opkit::inline OPKIT_ABI {

// Finding is O(log n), adding and removing O(n) pointer moves. Not synchronised.
template <class T>
class NameTable {
 public:
  struct Row {
    std::string name;
    T value;
  };

  // Null when there is none.
  T* Find(std::string_view name) const {
    const size_t at = LowerBound(name);
    return at < rows_.size() && rows_[at]->name == name ? &rows_[at]->value : nullptr;
  }
  // The object of that name, made from `args` when there is none.
  template <class... Args>
  T& FindOrAdd(std::string_view name, Args&&... args) {
    const size_t at = LowerBound(name);
    if (at == rows_.size() || rows_[at]->name != name)
      rows_.emplace(rows_.begin() + static_cast<std::ptrdiff_t>(at),
                    new Row{std::string(name), T(std::forward<Args>(args)...)});
    return rows_[at]->value;
  }
  bool Erase(std::string_view name) {
    const size_t at = LowerBound(name);
    if (at == rows_.size() || rows_[at]->name != name) return false;
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  // Rows in the order of their names: for (const auto& row : table) row->name, row->value.
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& row : rows_) names.push_back(row->name);
    return names;
  }

 private:
  size_t LowerBound(std::string_view name) const {
    size_t low = 0, high = rows_.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (rows_[middle]->name < name) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  std::vector<std::unique_ptr<Row>> rows_;
};

}  // namespace opkit

#endif  // OPKIT_BASE_NAME_TABLE_HPP_
