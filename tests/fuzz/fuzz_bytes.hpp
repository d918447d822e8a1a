// The input of a fuzzer, read as decisions.
#ifndef OPKIT_TESTS_FUZZ_FUZZ_BYTES_HPP_
#define OPKIT_TESTS_FUZZ_FUZZ_BYTES_HPP_

#include <cstddef>
#include <cstdint>

// All 0 when the bytes are used up, which is always what a right library does.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Byte() { return size_ == 0 ? 0 : (--size_, *data_++); }
  // True once in a while.
  bool Rarely() { return Byte() % 16 == 15; }
  template <class T, size_t n>
  T Of(const T (&choices)[n]) {
    return choices[Byte() % n];
  }
  // Mostly `right`.
  template <class T>
  T Mostly(T right, T wrong) {
    return Rarely() ? wrong : right;
  }
  // As above, where the wrong one costs a byte only when it is taken.
  template <class T, size_t n>
  T RightOr(T right, const T (&wrong)[n]) {
    return Rarely() ? Of(wrong) : right;
  }
  int64_t Number() {
    constexpr int64_t kNumbers[] = {
        0,  1,  2,        3,         4,         5,         32,        33,        64,      -1,
        -2, -3, INT8_MIN, INT16_MAX, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20, 1 << 30};
    return Of(kNumbers);
  }
  int32_t Small() { return static_cast<int32_t>(Number()); }

 private:
  const uint8_t* data_;
  size_t size_;
};

// The bytes of the thread that reads the input. Functions that the host runs on other threads find
// no bytes, so that an input always leads to the same decisions.
inline thread_local Bytes* t_bytes = nullptr;
inline Bytes& In() {
  static thread_local Bytes none(nullptr, 0);
  return t_bytes ? *t_bytes : none;
}

#endif  // OPKIT_TESTS_FUZZ_FUZZ_BYTES_HPP_
