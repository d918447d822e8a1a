// Operators that are wrong, each in its way, and one that is right. Pair multiplies matrices, so
// that not every shape is for it.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <opkit/plugin/author.hpp>

using namespace opkit;
using Inputs = std::span<const OpTensor>;
using Outputs = std::span<OpTensor>;

void Copy(const OpTensor& from, const OpTensor& to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to.data<float>()[i] = from.data<float>()[i];
}
void OneOfEach(const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; }
void Float(const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
  for (DType& dtype : in) dtype = DType::kFloat32;
  out[0] = DType::kFloat32;
}
void SameShape(const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; }

Status WritePast(const AttrMap&, Inputs in, Outputs out, OpResource&) {
  Copy(in[0], out[0], in[0].size());
  if (in[0].size() > 0) out[0].data<float>()[in[0].size()] = 1;
  return SUCCESS;
}
REGISTER_OP(WritesPast)
    .setForward(WritePast)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

Status WriteBefore(const AttrMap&, Inputs in, Outputs out, OpResource&) {
  Copy(in[0], out[0], in[0].size());
  for (int64_t i = 1; i <= 4; ++i) out[0].data<float>()[-i] = 1;
  return SUCCESS;
}
REGISTER_OP(WritesBefore)
    .setForward(WriteBefore)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

Status CopyAll(const AttrMap&, Inputs in, Outputs out, OpResource&) {
  Copy(in[0], out[0], in[0].size());
  return SUCCESS;
}
REGISTER_OP(WritesPastBackward)
    .setForward(CopyAll)
    .setBackward(WritePast)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

REGISTER_OP(CountsWrong)
    .setForward(CopyAll)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
      out = {in[0], in[0]};
    });

Status Crash(const AttrMap&, Inputs in, Outputs out, OpResource&) {
  if (in[0].rank() == 3) std::raise(SIGSEGV);
  Copy(in[0], out[0], in[0].size());
  return SUCCESS;
}
REGISTER_OP(CrashesOnThreeAxes)
    .setForward(Crash)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

Status CrashOnNone(const AttrMap&, Inputs in, Outputs out, OpResource&) {
  if (in[0].size() == 0) std::raise(SIGSEGV);
  Copy(in[0], out[0], in[0].size());
  return SUCCESS;
}
REGISTER_OP(CrashesOnNone)
    .setForward(CrashOnNone)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

// Writes what a record of an answer looked like, wherever the program that checks it may read.
Status Chatter(const AttrMap&, Inputs in, Outputs out, OpResource&) {
  Copy(in[0], out[0], in[0].size());
  for (int file = 3; file < 16; ++file) {
    struct stat about;
    if (fstat(file, &about) == 0 && S_ISFIFO(about.st_mode) &&
        write(file, "a\0\0\0\0\0\0\0\0", 9) < 0)
      continue;
  }
  return SUCCESS;
}
REGISTER_OP(Chatters)
    .setForward(Chatter)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

Status Gradient(const AttrMap&, Inputs in, Outputs out, OpResource&) {
  for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = -in[0].data<float>()[i];
  return SUCCESS;
}
REGISTER_OP(WrongGradient)
    .setForward(CopyAll)
    .setBackward(Gradient)
    .setParseAttrs(OneOfEach)
    .setInferType(Float)
    .setInferShape(SameShape);

// Right, and only for two integer indices beside a matrix of 4 by 4.
REGISTER_OP(Rows)
    .setForward([](const AttrMap&, Inputs in, Outputs out, OpResource&) {
      Copy(in[0], out[0], out[0].size());
      return SUCCESS;
    })
    .setParseAttrs([](const AttrMap& attrs, int* num_in, int* num_out) {
      attrs.Get<int>("rows");
      *num_in = 2;
      *num_out = 1;
    })
    .setInferType([](const AttrMap&, std::vector<DType>& in, std::vector<DType>& out) {
      in[0] = out[0] = DType::kFloat32;
      in[1] = DType::kInt64;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
      if (in[0].size() != 2) return FAIL;
      out[0] = in[0];
      return SUCCESS;
    });
