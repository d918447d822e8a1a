// NameIndex: numbers names in the order in which they are added. A graph's values and nodes have
// names; code that visits a graph works with the numbers. NameTable: a value for each name.
#ifndef OPKIT_BASE_NAME_INDEX_HPP_
#define OPKIT_BASE_NAME_INDEX_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "opkit/base/index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// An open-addressing hash table (linear probing, at most half full). Adding and finding is O(1);
// names are never removed. Not synchronised.
class NameIndex {
 public:
  // Returns the name's number, or -1 if the name was never added.
  int Find(std::string_view name) const;
  // Returns the name's number; a new name gets the next one.
  int Add(std::string_view name);
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& operator[](int number) const { return names_[Index(number)]; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  struct Slot {
    int number = -1;  // -1: empty
    uint32_t hash = 0;
  };

  // Returns the index of the name's slot, or of the empty slot where the name would go.
  size_t Probe(std::string_view name, uint32_t hash) const;
  void Grow();

  std::vector<std::string> names_;
  std::vector<Slot> slots_;  // their number is a power of two
};

// A value for each name, found in O(1). Adding a name may move the values. Not synchronised.
template <class T>
class NameTable {
 public:
  // Returns the name's value; a new name gets a value-initialised one.
  T& operator[](std::string_view name) {
    const size_t number = Index(names_.Add(name));
    if (number == values_.size()) values_.emplace_back();
    return values_[number];
  }
  // Returns null for a name that was never added.
  const T* Find(std::string_view name) const {
    const int number = names_.Find(name);
    return number < 0 ? nullptr : &values_[Index(number)];
  }
  bool empty() const { return values_.empty(); }

 private:
  NameIndex names_;
  std::vector<T> values_;  // by number in `names_`
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/name_index.ipp"
#endif

#endif  // OPKIT_BASE_NAME_INDEX_HPP_
