// BitCast, BitShift, BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor.
#include "opkit/ops/math/bitwise.hpp"

#include "../data_movement.hpp"

namespace bitwise_test {
using namespace opkit_tests;

namespace {

template <class T>
std::vector<T> Bits(const std::string& op, const std::vector<T>& a, const std::vector<T>& b,
                    Arguments args = {}) {
  return Invoke(op, {Vector<T>(a), Vector<T>(b)}, std::move(args))[0].template ToVector<T>();
}

TEST_CASE("bits are combined in each type of integer") {
  CHECK(Bits<int16_t>("BitwiseAnd", {-2, 6}, {5, 3}) == std::vector<int16_t>{4, 2});
  CHECK(Bits<int32_t>("BitwiseOr", {-8, 6}, {5, 1}) == std::vector<int32_t>{-3, 7});
  CHECK(Bits<uint64_t>("BitwiseXor", {UINT64_MAX, 6}, {1}) ==
        std::vector<uint64_t>{UINT64_MAX - 1, 7});
  CHECK(Invoke("BitwiseNot", {Vector<int8_t>({0, -1, 5})})[0].ToVector<int8_t>() ==
        std::vector<int8_t>{-1, 0, -6});
}

TEST_CASE("bits are moved, and a move by the width or more leaves none") {
  CHECK(Bits<uint8_t>("BitShift", {200, 3, 1, 1}, {1, 2, 8, 255}, {{"direction", "LEFT"}}) ==
        std::vector<uint8_t>{144, 12, 0, 0});
  CHECK(Bits<uint32_t>("BitShift", {200, 3, ~0u, ~0u}, {1, 2, 31, 32}, {{"direction", "RIGHT"}}) ==
        std::vector<uint32_t>{100, 0, 1, 0});
  CHECK(Contains(ErrorOf([] {
                   Bits<uint8_t>("BitShift", {1}, {1}, {{"direction", "UP"}});
                 }).message(),
                 "none of its values (known: 'LEFT', 'RIGHT')"));
  CHECK(Contains(ErrorOf([] { Bits<uint8_t>("BitShift", {1}, {1}); }).message(), "direction"));
  CHECK(ErrorOf([] {
          Bits<float>("BitShift", {1}, {1}, {{"direction", "LEFT"}});
        }).code() == ErrorCode::kTypeMismatch);
}

TEST_CASE("signed numbers keep their sign in a shift to the right") {
  CHECK(Bits<int8_t>("BitShift", {-7, 7, -128, -1, 5, -5, 5}, {1, 1, 7, 8, 8, -1, -1},
                     {{"direction", "RIGHT"}}) == std::vector<int8_t>{-4, 3, -1, -1, 0, -1, 0});
  CHECK(Bits<int8_t>("BitShift", {-7, 64, 1, 3, 3}, {1, 1, 7, 8, -1}, {{"direction", "LEFT"}}) ==
        std::vector<int8_t>{-14, -128, -128, 0, 0});
  CHECK(Bits<int64_t>("BitShift", {INT64_MIN, -1, 1}, {62, 64, 63}, {{"direction", "RIGHT"}}) ==
        std::vector<int64_t>{-2, -1, 0});
  CHECK(Bits<int32_t>("BitShift", {-3}, {30}, {{"direction", "LEFT"}}) ==
        std::vector<int32_t>{1 << 30});
}

TEST_CASE("BitCast keeps the bytes, and refuses a type of another size") {
  const Tensor x = Tensor::From<float>({2}, {1.f, -2.f});
  CHECK(Invoke("BitCast", {x}, {{"to", 6}})[0].ToVector<int32_t>() ==
        std::vector<int32_t>{0x3f800000, -0x40000000});
  CHECK(Inferred("BitCast", {{Sym("N"), 3}}, {{"to", 12}}) == "uint32[N, 3]");
  CHECK(Refused("BitCast", {{2}}, {{"to", 7}}) ==
        "BitCast: elements of float32 have 32 bits and those of int64 have 64, expected the same "
        "size");
  CHECK(Contains(Refused("BitCast", {{2}}, {{"to", 99}}), "BitCast: to=99 is not the number"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  for (const char* op : {"BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"})
    OPKIT_CHECK_OPERATOR(op);
  CheckNode(OperatorDef("BitShift", {"a", "b"}, {"c"}, {{"direction", "LEFT"}}),
            {Vector<uint16_t>({1, 2, 3}), Vector<uint16_t>({4})});
  CheckNode(OperatorDef("BitShift", {"a", "b"}, {"c"}, {{"direction", "RIGHT"}}),
            {Vector<int16_t>({1, -2, 3}), Vector<int16_t>({1})});
  CheckNode(OperatorDef("BitCast", {"x"}, {"y"}, {{"to", 6}}), {Counting({2, 3})});
}

}  // namespace
}  // namespace bitwise_test
