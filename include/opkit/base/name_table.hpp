// NameTable: objects by name, sorted, at addresses that never change. A sorted vector instead of a
// std::map: tables of names are read far more often than they grow, and every instantiation of
// std::map costs a translation unit as much as this whole folder.
#ifndef OPKIT_BASE_NAME_TABLE_HPP_
#define OPKIT_BASE_NAME_TABLE_HPP_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "opkit/base/ref_counted.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

struct NamedRow : RefCounted {
  explicit NamedRow(std::string_view row_name) : name(row_name) {}
  std::string name;
};

// All of a table that does not depend on what it holds, so that every table is the same code.
class SortedRows {
 public:
  NamedRow* At(size_t i) const { return static_cast<NamedRow*>(rows[i].get()); }
  // Place of `name`, or where it would be.
  size_t LowerBound(std::string_view name) const;
  NamedRow* Find(std::string_view name) const;
  void Add(NamedRow* row);
  bool Erase(std::string_view name);

  RefCountedList rows;
};

}  // namespace detail

// Finding is O(log n), adding and removing O(n) pointer moves. Not synchronised.
template <class T>
class NameTable {
 public:
  struct Row : detail::NamedRow {
    template <class... Args>
    explicit Row(std::string_view row_name, Args&&... args)
        : NamedRow(row_name), value(std::forward<Args>(args)...) {}
    T value;
  };

  NameTable() = default;
  NameTable(NameTable&&) = default;
  NameTable& operator=(NameTable&&) = default;

  // Null when there is none.
  T* Find(std::string_view name) const {
    detail::NamedRow* row = table_.Find(name);
    return row ? &static_cast<Row*>(row)->value : nullptr;
  }
  // The object of that name, made from `args` when there is none.
  template <class... Args>
  T& FindOrAdd(std::string_view name, Args&&... args) {
    if (T* found = Find(name)) return *found;
    auto* row = new Row(name, std::forward<Args>(args)...);
    table_.Add(row);
    return row->value;
  }
  bool Erase(std::string_view name) { return table_.Erase(name); }

  size_t size() const { return table_.rows.size(); }
  bool empty() const { return table_.rows.empty(); }
  // Rows in the order of their names: for (const auto* row : table) row->name, row->value.
  struct Iterator {
    const detail::IntrusivePtr<detail::RefCounted>* at;
    Row* operator*() const { return static_cast<Row*>(at->get()); }
    void operator++() { ++at; }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };
  Iterator begin() const { return {table_.rows.data()}; }
  Iterator end() const { return {table_.rows.data() + size()}; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < size(); ++i) names.push_back(table_.At(i)->name);
    return names;
  }

 private:
  detail::SortedRows table_;
};

}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/name_table.ipp"
#endif

#endif  // OPKIT_BASE_NAME_TABLE_HPP_
