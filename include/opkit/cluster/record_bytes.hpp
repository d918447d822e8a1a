// RecordBytes: writes records as bytes, and reads them on another process of the same machine type.
#ifndef OPKIT_CLUSTER_RECORD_BYTES_HPP_
#define OPKIT_CLUSTER_RECORD_BYTES_HPP_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A type of record has one function for writing and for reading. The function calls Number, Text or
// ForEach for each member. They append the member to the bytes, or read the member from the bytes.
class RecordBytes {
 public:
  RecordBytes() = default;
  // Reads. The text must outlive the object.
  explicit RecordBytes(std::string_view text) : is_reading_(true), in_(text) {}

  bool is_reading() const { return is_reading_; }
  // The bytes that were written.
  const std::string& bytes() const { return out_; }

  template <class T>
  void Number(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (is_reading_) {
      OPKIT_ASSERT(in_.size() >= sizeof value);
      std::memcpy(&value, in_.data(), sizeof value);
      in_.remove_prefix(sizeof value);
    } else {
      out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  void Text(std::string& text) {
    uint64_t size = text.size();
    Number(size);
    if (!is_reading_) {
      out_ += text;
      return;
    }
    OPKIT_ASSERT(in_.size() >= size);
    text = in_.substr(0, size);
    in_.remove_prefix(size);
  }
  // Passes the number of elements, and calls pass(element) for each.
  template <class T, class F>
  void ForEach(std::vector<T>& list, F pass) {
    uint64_t size = list.size();
    Number(size);
    list.resize(size);
    for (T& each : list) pass(each);
  }
  template <class T>
  void Numbers(std::vector<T>& list) {
    ForEach(list, [this](T& each) { Number(each); });
  }

 private:
  bool is_reading_ = false;
  std::string out_;
  std::string_view in_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_CLUSTER_RECORD_BYTES_HPP_
