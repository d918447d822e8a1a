// NameIndex: numbers for names, in the order they were added. Graphs name their values and nodes;
// everything that walks a graph works on these numbers.
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

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/name_index.ipp"
#endif

#endif  // OPKIT_BASE_NAME_INDEX_HPP_
