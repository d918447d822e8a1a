// Reads and writes .npy files: the header, a Python literal, and the elements behind it.
#include "npy.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

#include "opkit/base/output_file.hpp"
#include "opkit/interop/mapped_file.hpp"

namespace cli {

using namespace opkit;

namespace {

constexpr int kMaxNpyRank = 64;

// The header of a file, a dictionary in Python's syntax:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class NpyHeader {
 public:
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;

  explicit NpyHeader(std::string_view text) : text_(text) {
    bool has_descr = false, has_order = false, has_shape = false;
    Expect('{');
    while (!Take('}')) {
      const std::string key = String();
      Expect(':');
      if (key == "descr" && !has_descr) {
        if (Peek() == '[')
          Throw(ErrorCode::kUnsupported, "its elements are records; save each field by itself");
        descr = String();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        fortran_order = Bool();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        Extents();
        has_shape = true;
      } else {
        Fail(StrCat("the key '", key, "' once, or none of that name"));
      }
      if (Take(',')) continue;
      Expect('}');
      break;
    }
    if (Peek() != '\0') Fail("nothing behind the dictionary");
    if (!has_descr || !has_order || !has_shape)
      Throw(ErrorCode::kInvalidArgument,
            "its header should have the keys 'descr', 'fortran_order' and 'shape'");
  }

 private:
  [[noreturn]] void Fail(const std::string& expected) const {
    Throw(ErrorCode::kInvalidArgument, "its header should have ", expected, " at character ", at_);
  }
  // Skips blanks and returns the next character; '\0' at the end.
  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Fail(StrCat("'", c, "'"));
  }
  std::string String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Fail("a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) Fail("a string that ends");
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  bool Bool() {
    Peek();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    Fail("True or False");
  }
  void Extents() {
    Expect('(');
    while (!Take(')')) {
      Peek();
      int64_t extent = 0;
      const char* end = text_.data() + text_.size();
      const auto read = std::from_chars(text_.data() + at_, end, extent);
      if (read.ec != std::errc() || extent < 0) Fail("an extent");
      if (shape.size() == kMaxNpyRank) Fail(StrCat("no more than ", kMaxNpyRank, " extents"));
      shape.push_back(extent);
      at_ = static_cast<size_t>(read.ptr - text_.data());
      Take('L');  // Python 2 writes 8L
      if (Take(',')) continue;
      if (shape.size() == 1 && Peek() == ')')  // (8) is a number in Python
        Fail("a comma behind a single extent");
      Expect(')');
      break;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

// A DType and its type code in .npy files.
struct NpyType {
  DType dtype;
  const char* code;  // kind and size in bytes
};
constexpr NpyType kNpyTypes[] = {
    {DType::kBool, "b1"},      {DType::kInt8, "i1"},       {DType::kInt16, "i2"},
    {DType::kInt32, "i4"},     {DType::kInt64, "i8"},      {DType::kUInt8, "u1"},
    {DType::kUInt16, "u2"},    {DType::kUInt32, "u4"},     {DType::kUInt64, "u8"},
    {DType::kFloat16, "f2"},   {DType::kFloat32, "f4"},    {DType::kFloat64, "f8"},
    {DType::kComplex64, "c8"}, {DType::kComplex128, "c16"}};

DType NpyDType(const std::string& descr) {
  const bool ordered = !descr.empty() && std::string_view("<>|=").find(descr[0]) < 4;
  for (const NpyType& type : kNpyTypes)
    if (descr.substr(ordered ? 1 : 0) == type.code) return type.dtype;
  const char* hint =
      descr.ends_with("O") ? "; for an array of strings, save array.astype(str)" : "";
  Throw(ErrorCode::kUnsupported, "its elements are '", descr,
        "', which is no number, bool or string that opkit has", hint);
}

// The width of the strings of a file: `count` characters of UCS-4 ('<U4'), or bytes ('|S4').
struct NpyStrings {
  size_t count = 0;
  size_t bytes = 0;  // of one character: 4 or 1
};

// Returns the width if the elements are strings.
std::optional<NpyStrings> StringsOf(const std::string& descr) {
  constexpr size_t kLongest = size_t{1} << 31;
  if (descr.size() < 3 || std::string_view("<>|=").find(descr[0]) == std::string_view::npos ||
      (descr[1] != 'U' && descr[1] != 'S'))
    return std::nullopt;
  const char* end = descr.data() + descr.size();
  NpyStrings out;
  out.bytes = descr[1] == 'U' ? 4 : 1;
  const auto read = std::from_chars(descr.data() + 2, end, out.count);
  if (read.ec != std::errc() || read.ptr != end || out.count == 0 || out.count > kLongest)
    return std::nullopt;
  return out;
}

void AppendUtf8(uint32_t code, std::string* out) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    Throw(ErrorCode::kInvalidArgument, "a string in it has the number ", code,
          ", which is no character");
  const auto tail = [&](int shift) { *out += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else if (code < 0x800) {
    *out += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    *out += static_cast<char>(0xE0 | code >> 12);
    tail(6), tail(0);
  } else {
    *out += static_cast<char>(0xF0 | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

// Returns the characters of a string in UTF-8; nullopt for other bytes.
std::optional<std::u32string> CharactersOf(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const int more = first < 0x80 ? 0 : first < 0xC0 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (more < 0 || first > 0xF4 || text.size() - at <= static_cast<size_t>(more))
      return std::nullopt;
    uint32_t code = more == 0 ? first : first & (0x3Fu >> more);
    for (int i = 0; i < more; ++i) {
      const auto next = static_cast<unsigned char>(text[++at]);
      if ((next & 0xC0) != 0x80) return std::nullopt;
      code = code << 6 | (next & 0x3F);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // with so many bytes more
    if (code < kLeast[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return std::nullopt;
    ++at;
    out += code;
  }
  return out;
}

// Returns a tensor of the file's strings, in UTF-8, in the file's order. NumPy fills a string up
// with zeros, so zeros at its end do not count. The bytes of '|S4' are taken as they are.
Tensor NpyTexts(std::string_view data, const Shape& shape, NpyStrings width, bool swap) {
  const uint64_t each = width.count * width.bytes;
  const auto count = static_cast<uint64_t>(shape.numel());
  if (count > data.size() / each)
    Throw(ErrorCode::kInvalidArgument, "it has ", data.size(), " bytes behind its header, but ",
          count, " strings of ", each, " bytes need more");
  std::vector<std::string> texts(count);
  for (std::string& text : texts) {
    std::string_view bytes = data.substr(0, each);
    data.remove_prefix(each);
    bytes = bytes.substr(0, bytes.find_last_not_of('\0') + 1);
    if (width.bytes == 1) {
      text = bytes;
      continue;
    }
    const auto byte = [&](size_t i) -> uint32_t {
      return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
    };
    for (size_t i = 0; i < bytes.size(); i += 4)
      AppendUtf8(swap ? byte(i) << 24 | byte(i + 1) << 16 | byte(i + 2) << 8 | byte(i + 3)
                      : byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24,
                 &text);
  }
  return Tensor::From<std::string>(shape, std::move(texts));
}

// The elements of a file for writing: their type code and their bytes.
struct NpyTextData {
  std::string code;  // such as U4
  std::string bytes;
};

// Returns the strings of a tensor as NumPy stores them, with room for the longest.
NpyTextData DataOf(const Tensor& tensor, const std::string& path) {
  const std::vector<std::string> texts = tensor.ToVector<std::string>();
  size_t width = 1;
  for (const std::string& text : texts) {
    const auto characters = CharactersOf(text);
    if (!characters)
      Throw(ErrorCode::kUnsupported, path, ": NumPy has only strings in UTF-8, and one is not");
    if (text.ends_with('\0'))
      Throw(ErrorCode::kUnsupported, path, ": NumPy has no strings that end with a zero");
    width = std::max(width, characters->size());
  }
  NpyTextData out{StrCat("U", width), std::string(texts.size() * width * 4, '\0')};
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::u32string characters = *CharactersOf(texts[i]);
    std::memcpy(out.bytes.data() + i * width * 4, characters.data(), characters.size() * 4);
  }
  return out;
}

// Returns a tensor of the file's elements, in the file's order. Swaps the bytes of each element if
// `swap`.
Tensor NpyElements(std::string_view data, const Shape& shape, DType dtype, bool swap) {
  const int64_t needed = Tensor::CheckedBytes(shape, dtype);
  if (static_cast<uint64_t>(needed) > data.size())
    Throw(ErrorCode::kInvalidArgument, "it has ", data.size(), " bytes behind its header, but ",
          dtype, ToString(shape), " needs ", needed);
  Tensor out(shape, dtype);
  if (needed == 0) return out;
  char* bytes = static_cast<char*>(out.raw_mutable_data());
  std::memcpy(bytes, data.data(), static_cast<size_t>(needed));
  if (dtype == DType::kBool)  // NumPy may store true as another byte than 1, which is no C++ bool
    for (int64_t i = 0; i < needed; ++i) bytes[i] = bytes[i] != 0;
  const int64_t word = ItemSize(dtype) / (IsComplex(dtype) ? 2 : 1);
  for (int64_t i = 0; swap && i < needed; i += word)
    for (int64_t k = 0; k < word / 2; ++k) std::swap(bytes[i + k], bytes[i + word - 1 - k]);
  return out;
}

}  // namespace

Tensor ParseNpy(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (bytes.substr(0, 6) != kMagic || bytes.size() < 10)
    Throw(ErrorCode::kInvalidArgument, "it does not begin as a .npy file does");
  const auto byte = [&](size_t i) { return size_t{static_cast<unsigned char>(bytes[i])}; };
  const size_t version = byte(6);
  if (version < 1 || version > 3)
    Throw(ErrorCode::kUnsupported, "it is of version ", version, " of the format, not 1 to 3");
  const size_t begin = version == 1 ? 10 : 12;
  if (bytes.size() < begin) Throw(ErrorCode::kInvalidArgument, "it ends in its header");
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > bytes.size() - begin) Throw(ErrorCode::kInvalidArgument, "it ends in its header");
  const NpyHeader header(bytes.substr(begin, length));
  const auto strings = StringsOf(header.descr);
  const DType dtype = strings ? DType::kString : NpyDType(header.descr);
  std::vector<int64_t> extents = header.shape;
  if (header.fortran_order) extents.assign(header.shape.rbegin(), header.shape.rend());
  const std::string_view data = bytes.substr(begin + length);
  const bool swap = header.descr[0] == '>';
  Tensor out = strings ? NpyTexts(data, Shape(extents), *strings, swap)
                       : NpyElements(data, Shape(extents), dtype, swap);
  if (!header.fortran_order || extents.size() < 2) return out;
  Dims reversed(extents);
  for (int i = 0; i < reversed.size(); ++i) reversed[i] = reversed.size() - 1 - i;
  return out.Permute(reversed).Contiguous();
}

Tensor ReadNpy(const std::string& path) {
  const Storage file = MapFile(path);
  try {
    return ParseNpy(BytesOf(file));
  } catch (const Error& error) {
    Throw(error.code(), path, ": ", error.message());
  }
}

void SaveNpy(const std::string& path, const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  std::string code;
  for (const NpyType& type : kNpyTypes)
    if (type.dtype == dtype) code = type.code;
  if (dtype == DType::kSequence || dtype == DType::kOptional)
    Throw(ErrorCode::kUnsupported, path, ": NumPy has no ", dtype, "; save its elements");
  if (code.empty() && dtype != DType::kUndefined && dtype != DType::kString)
    Throw(ErrorCode::kUnsupported, path, ": NumPy has no ", dtype,
          "; cast the tensor to float32 first");
  if (tensor.rank() > kMaxNpyRank)
    Throw(ErrorCode::kUnsupported, path, ": NumPy has no arrays of more than ", kMaxNpyRank,
          " dimensions");
  const bool as_it_is = tensor.is_dense() && tensor.initialized() &&
                        tensor.layout().is_standard() && IsHostAccessible(tensor.device().type);
  const Tensor dense = as_it_is ? tensor : tensor.Contiguous();
  NpyTextData texts;
  if (dtype == DType::kString) {
    texts = DataOf(dense, path);
    code = texts.code;
  }
  std::string extents;
  for (const int64_t extent : dense.shape()) extents += StrCat(extents.empty() ? "" : ", ", extent);
  if (dense.rank() == 1) extents += ",";
  const bool has_order = dtype == DType::kString || ItemSize(dtype) > 1;
  std::string header = StrCat("{'descr': '", has_order ? '<' : '|', code,
                              "', 'fortran_order': False, 'shape': (", extents, "), }");
  header.append(63 - (10 + header.size()) % 64, ' ');  // data begins at a multiple of 64
  header += '\n';
  std::string head = "\x93NUMPY\x01";
  head += '\0';
  head += static_cast<char>(header.size() & 255);
  head += static_cast<char>(header.size() >> 8);
  head += header;

  opkit::detail::OutputFile file(path);
  file.Write(head);
  if (dtype == DType::kString)
    file.Write(texts.bytes);
  else
    file.Write({static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.nbytes())});
  file.Commit();
}

}  // namespace cli
