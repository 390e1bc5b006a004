// Quantizes a matrix as a frozen base is quantized, and dequantizes it again.
//   quantize_probe FORMAT ROWS COLUMNS VALUES OUT_DIR
// FORMAT: int8, nf4, nf4-dq, mxfp4, fp8 or int4; VALUES: a file of f32 [ROWS, COLUMNS]. Writes
// OUT_DIR/values, scales, group_scales and mean, the sections of the quantized matrix (QuantizedPart), and
// OUT_DIR/dequantized, f32.
#include <cstdio>
#include <stdexcept>
#include <thread>

#include <strata/kernels/weight_quant.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

kernels::WeightFormat format_of(const std::string& name) {
  if (const auto format = kernels::weight_format_named(name)) return *format;
  throw std::runtime_error(name + " is the name of no format (train.base)");
}

void write(const std::string& path, std::span<const std::byte> bytes) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size())
    throw std::runtime_error("cannot write " + path);
  std::fclose(file);
}

void probe(const std::string& format, std::int64_t rows, std::int64_t columns, const std::string& from,
           const std::string& out) {
  const kernels::QuantizedMatrix matrix = {format_of(format), columns, {rows}};
  std::vector<float> values(static_cast<std::size_t>(matrix.n_elems()));
  std::FILE* const file = std::fopen(from.c_str(), "rb");
  if (file == nullptr || std::fread(values.data(), sizeof(float), values.size(), file) != values.size())
    throw std::runtime_error(str(from, " has fewer than ", values.size(), " values"));
  std::fclose(file);
  const auto pool =
      must(ThreadPool::create(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))));
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.bytes()));
  kernels::quantize_matrix(matrix, values, bytes, *pool);
  const kernels::QuantizedPart part = matrix.part(0);
  const bool nested = matrix.format == kernels::WeightFormat::nf4_dq;
  const auto section = [&](const char* name, std::int64_t at, std::int64_t n) {
    write(str(out, "/", name),
          std::span(bytes).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)));
  };
  section("values", part.values, part.value_bytes);
  section("scales", part.scales, part.blocks * scale_bytes(kernels::traits_of(matrix.format).scales));
  section("group_scales", part.group_scales, part.groups * 4);
  section("mean", part.mean, nested ? 4 : 0);
  kernels::dequantize_matrix(matrix, bytes, 0, values);
  write(out + "/dequantized", std::as_bytes(std::span(values)));
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  try {
    if (argc != 6) throw std::runtime_error("usage: quantize_probe FORMAT ROWS COLUMNS VALUES OUT_DIR");
    strata::probe(argv[1], std::stoll(argv[2]), std::stoll(argv[3]), argv[4], argv[5]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quantize_probe: %s\n", error.what());
    return 1;
  }
}
