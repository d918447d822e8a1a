// Tensors survive .npy files to the bit; what is no such file is an Error that says why.
#include "npy.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "opkit/core/sequence.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/temporary_folder.hpp"

namespace npy_test {
using namespace opkit;
using namespace cli;

namespace {

class File {
 public:
  std::string path() const { return folder_ / "file.npy"; }
  std::string bytes() const { return ReadFile(path()); }

 private:
  TemporaryFolder folder_;
};

std::string Npy(const std::string& header, const std::string& data, int version = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    out += static_cast<char>(header.size() >> (8 * i) & 255);
  return out + header + data;
}
template <class T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string What(const std::string& bytes) {
  return ErrorOf([&] { ParseNpy(bytes); }).what();
}

}  // namespace

TEST_CASE("Tensors of every dtype that NumPy has come back to the bit") {
  const File file;
  for (int i = 1; i < kNumPlainDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype == DType::kBFloat16) continue;
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0, 3}, Shape{2, 3, 1}}) {
      CAPTURE(ToString(dtype));
      Tensor tensor(shape, dtype);
      for (int64_t k = 0; k < tensor.nbytes(); ++k)
        static_cast<char*>(tensor.raw_mutable_data())[k] =
            static_cast<char>(dtype == DType::kBool ? k % 2 : 255 - 7 * k - i);
      SaveNpy(file.path(), tensor);
      const Tensor again = ReadNpy(file.path());
      CHECK(again.dtype() == dtype);
      CHECK(again.shape() == shape);
      if (tensor.nbytes() > 0)
        CHECK(std::memcmp(again.raw_data(), tensor.raw_data(),
                          static_cast<size_t>(tensor.nbytes())) == 0);
    }
  }
}

TEST_CASE("A file equals NumPy's, byte for byte") {
  const File file;
  SaveNpy(file.path(), Tensor::From<float>({2, 1}, {1, 2}));
  const std::string bytes = file.bytes();
  CHECK(bytes.size() == 128 + 8);
  CHECK(bytes.substr(0, 10) == std::string("\x93NUMPY\x01\0\x76\0", 10));
  CHECK(Contains(bytes, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }  "));
  CHECK(bytes[127] == '\n');
  SaveNpy(file.path(), Tensor::From<bool>({1}, {true}));
  CHECK(Contains(file.bytes(), "{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }"));
  SaveNpy(file.path(), Tensor::Scalar<int64_t>(7));
  CHECK(Contains(file.bytes(), "{'descr': '<i8', 'fortran_order': False, 'shape': (), }"));
}

TEST_CASE("A tensor with strides is written row-major") {
  const File file;
  const Tensor tensor = Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  SaveNpy(file.path(), tensor.Permute({1, 0}));
  const Tensor again = ReadNpy(file.path());
  CHECK(again.shape() == Shape{3, 2});
  CHECK(again.ToVector<float>() == Floats{1, 4, 2, 5, 3, 6});
}

TEST_CASE("Fortran's order, other byte orders, other versions and spellings are read") {
  const std::string data = Bytes<float>({1, 2, 3, 4, 5, 6});
  const Tensor columns =
      ParseNpy(Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", data));
  CHECK(columns.shape() == Shape{2, 3});
  CHECK(columns.is_dense());
  CHECK(columns.ToVector<float>() == Floats{1, 3, 5, 2, 4, 6});
  const std::string swapped("\x01\x02\x03\x04\x05\x06\x07\x08", 8);
  CHECK(ParseNpy(Npy("{'descr': '>i4', 'fortran_order': False, 'shape': (2,)}", swapped))
            .ToVector<int32_t>() == std::vector<int32_t>{0x01020304, 0x05060708});
  CHECK(ParseNpy(Npy("{'descr': '>c8', 'fortran_order': False, 'shape': ()}",
                     std::string("\x3f\x80\0\0\x40\0\0\0", 8)))
            .View({1})
            .nbytes() == 8);
  for (const int version : {2, 3})
    CHECK(ParseNpy(Npy("{\"shape\": (6L,), \"descr\": \"=f4\", \"fortran_order\": False}  \n", data,
                       version))
              .ToVector<float>() == Floats{1, 2, 3, 4, 5, 6});
  CHECK(ParseNpy(Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}",
                     "\x01\xff"
                     "0"))
            .ToVector<bool>() == std::vector<bool>{true, true, true});
  // More may follow: np.save can be called again on the same file.
  CHECK(ParseNpy(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", data)).numel() ==
        2);
}

TEST_CASE("Types that opkit or NumPy lacks are Errors that name them") {
  const auto descr = [](const std::string& text) {
    return What(
        Npy("{'descr': " + text + ", 'fortran_order': False, 'shape': (1,), }", "12345678"));
  };
  CHECK(descr("'|V4'") ==
        "its elements are '|V4', which is no number, bool or string that opkit has");
  CHECK(descr("'|O'") ==
        "its elements are '|O', which is no number, bool or string that opkit has; for an array of "
        "strings, save array.astype(str)");
  CHECK(Contains(descr("'<f3'"), "'<f3'"));
  CHECK(Contains(descr("''"), "elements are ''"));
  CHECK(descr("[('a', '<f4')]") == "its elements are records; save each field by itself");
  const File file;
  const Error cast = ErrorOf([&] { SaveNpy(file.path(), Tensor::Scalar(bfloat16(1.f))); });
  CHECK(cast.code() == ErrorCode::kUnsupported);
  CHECK(cast.message() ==
        file.path() + ": NumPy has no bfloat16; cast the tensor to float32 first");
  for (const DType dtype : {DType::kInt4, DType::kFloat8E5M2})
    CHECK(Contains(ErrorOf([&] { SaveNpy(file.path(), Tensor({3}, dtype)); }).message(),
                   StrCat("NumPy has no ", dtype, "; cast the tensor to float32 first")));
  CHECK(ErrorOf([&] { SaveNpy(file.path(), MakeSequence({Tensor::Scalar(1.f)})); }).message() ==
        file.path() + ": NumPy has no sequence; save its elements");
  CHECK(ErrorOf([&] { SaveNpy(file.path(), Tensor()); }).code() == ErrorCode::kUninitialized);
}

TEST_CASE("Strings are read and written as NumPy's arrays of characters") {
  using Texts = std::vector<std::string>;
  const File file;
  const Texts texts = {"a", "", "h\u00e9llo", "\u65e5\u672c", "\U0001F600!", "x\ty"};
  for (const Shape& shape : {Shape{6}, Shape{2, 3}}) {
    SaveNpy(file.path(), Tensor::From<std::string>(shape, texts));
    const Tensor again = ReadNpy(file.path());
    CHECK(again.shape() == shape);
    CHECK(again.ToVector<std::string>() == texts);
  }
  CHECK(Contains(file.bytes(), "{'descr': '<U5', 'fortran_order': False, 'shape': (2, 3), }"));
  CHECK(file.bytes().size() == 128 + 6 * 5 * 4);
  CHECK(file.bytes().substr(128, 8) == std::string("a\0\0\0\0\0\0\0", 8));
  SaveNpy(file.path(), Tensor::From<std::string>({0, 2}, {}));
  CHECK(ReadNpy(file.path()).shape() == Shape{0, 2});
  const auto parse = [](const std::string& descr, const std::string& data,
                        const char* order = "False, 'shape': (2,)}") {
    return ParseNpy(Npy("{'descr': '" + descr + "', 'fortran_order': " + order, data));
  };
  CHECK(parse("|S3", std::string("ab\0\xff\0c", 6)).ToVector<std::string>() ==
        Texts{"ab", std::string("\xff\0c", 3)});
  CHECK(parse(">U1", std::string("\0\0\0a\0\0\x65\xe5", 8)).ToVector<std::string>() ==
        Texts{"a", "\u65e5"});
  CHECK(parse("|S1", "abcd", "True, 'shape': (2, 2)}").ToVector<std::string>() ==
        Texts{"a", "c", "b", "d"});
}

TEST_CASE("Strings that are damaged or that NumPy cannot hold are Errors") {
  const File file;
  const auto save = [&](std::string text) {
    return ErrorOf([&] { SaveNpy(file.path(), Tensor::From<std::string>({1}, {text})); }).message();
  };
  for (const char* bytes :
       {"\xff", "\xc3", "\xe6\x97", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80"})
    CHECK(Contains(save(bytes), "NumPy has only strings in UTF-8"));
  CHECK(Contains(save(std::string("a\0", 2)), "no strings that end with a zero"));
  const auto what = [](const std::string& descr, const std::string& shape) {
    return What(Npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + ",)}",
                    std::string("a\0\0\0\0\xd8\0\0", 8)));
  };
  CHECK(what("<U1", "3") == "it has 8 bytes behind its header, but 3 strings of 4 bytes need more");
  CHECK(Contains(what("<U1", "4611686018427387904"), "need more"));
  CHECK(Contains(what("<U0", "1"), "no number, bool or string"));
  CHECK(Contains(what("<U99999999999999999999", "1"), "no number, bool or string"));
  CHECK(what("<U1", "2") == "a string in it has the number 55296, which is no character");
}

TEST_CASE("A damaged or hostile header is an Error") {
  const auto header = [](const std::string& text) { return What(Npy(text, "12345678")); };
  CHECK(What("") == "it does not begin as a .npy file does");
  CHECK(What("PK\x03\x04 and so on, as .npz does") == "it does not begin as a .npy file does");
  CHECK(What(Npy("{}", "", 4)) == "it is of version 4 of the format, not 1 to 3");
  CHECK(What(Npy("{}", "").substr(0, 10)) == "it ends in its header");
  CHECK(What(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12)) == "it ends in its header");
  CHECK(header("{}") == "its header should have the keys 'descr', 'fortran_order' and 'shape'");
  CHECK(header("[1]") == "its header should have '{' at character 0");
  CHECK(header("{'descr': '<f4'") == "its header should have '}' at character 15");
  CHECK(header("{'descr': '<f4") == "its header should have a string that ends at character 10");
  CHECK(Contains(header("{'descr': '<f4', 'descr': '<f4'}"), "the key 'descr' once"));
  CHECK(Contains(header("{'other': 1}"), "the key 'other' once, or none of that name"));
  CHECK(Contains(header("{'fortran_order': 1}"), "True or False at character 18"));
  CHECK(Contains(header("{'shape': (-1,)}"), "an extent at character 11"));
  CHECK(Contains(header("{'shape': (1, x)}"), "an extent at character 14"));
  CHECK(Contains(header("{'shape': (99999999999999999999,)}"), "an extent"));
  CHECK(Contains(header("{'shape': (1 2)}"), "')'"));
  CHECK(header("{'shape': (8)}") ==
        "its header should have a comma behind a single extent at character 12");
  std::string many = "{'shape': (";
  for (int i = 0; i < 65; ++i) many += "1,";
  CHECK(Contains(header(many), "no more than 64 extents"));
  const auto shape = [&](const std::string& text) {
    return header("{'descr': '<f4', 'fortran_order': False, 'shape': " + text + "}");
  };
  CHECK(shape("(3,)") == "it has 8 bytes behind its header, but float32[3] needs 12");
  CHECK(Contains(shape("(1099511627776,)"), "it has 8 bytes"));
  CHECK(Contains(shape("(4611686018427387904, 4)"), "64-bit count"));
  CHECK(Contains(shape("(4611686018427387904,)"), "64-bit count"));
  CHECK(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x") ==
        "its header should have nothing behind the dictionary at character 56");
}

TEST_CASE("Files that cannot be opened or written are Errors that name them") {
  CHECK(ErrorOf([] { ReadNpy("/nowhere/x.npy"); }).message() ==
        "cannot open '/nowhere/x.npy': No such file or directory");
  const Error error = ErrorOf([] { SaveNpy("/nowhere/x.npy", Tensor::Scalar(1.f)); });
  CHECK(error.code() == ErrorCode::kIo);
  CHECK(error.message() == "cannot write '/nowhere/x.npy': No such file or directory");
  const File file;
  std::ofstream(file.path()).close();
  CHECK(ErrorOf([&] { ReadNpy(file.path()); }).message() ==
        file.path() + ": it does not begin as a .npy file does");
}

TEST_CASE("a device takes the bytes of a file, and a full one is an Error that names it") {
  const Error error = ErrorOf([] { SaveNpy("/dev/full", Tensor::Scalar(1.f)); });
  CHECK(error.code() == ErrorCode::kIo);
  CHECK(error.message() == "cannot write '/dev/full': No space left on device");
  SaveNpy("/dev/null", Tensor::Scalar(1.f));
}

}  // namespace npy_test
