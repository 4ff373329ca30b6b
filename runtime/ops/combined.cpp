#include "combined.hpp"

#include <span>

namespace tensoropt {
namespace {

using Pieces = std::span<const Piece>;

// The layout of the ranks' parts in the larger of x and y.
Cut parts_of(const Piece& piece, const ElementInfo& element) {
  const auto& node = piece.node;
  const bool gathers = node.kind == Kind::AllGather;
  return cut_of(gathers ? piece.shape : node.output_shape(piece.shape), std::size_t(node.dim),
                node.group.size(), element.bytes);
}

// Pieces packed in sequence: this rank's operands, or its results.
class Pack {
 public:
  Pack(Pieces pieces, const ElementInfo& element, Transport& transport)
      : pieces_(pieces), element_(element), transport_(transport),
        ranks_(pieces.front().node.group.size()) {
    for (const auto& piece : pieces) bytes_ += own_bytes(piece);
  }

  void run() const {
    switch (pieces_.front().node.kind) {
      case Kind::AllReduce: return all_reduce();
      case Kind::AllGather: return all_gather();
      default: return reduce_scatter();
    }
  }

 private:
  // Bytes of a piece per rank; for an AllReduce all bytes.
  std::size_t own_bytes(const Piece& piece) const {
    const auto bytes = count_of(piece.shape) * element_.bytes;
    return piece.node.kind == Kind::ReduceScatter ? bytes / ranks_ : bytes;
  }

  Reduction reduction() const { return pieces_.front().node.reduction; }
  std::size_t count() const { return bytes_ / element_.bytes; }
  void* scratch(std::size_t index, std::size_t bytes) const {
    return transport_.scratch(index, bytes);
  }

  // Calls `each` with every piece and its offset in the packed bytes of one rank.
  template <class Each>
  void for_all(const Each& each) const {
    std::size_t offset = 0;
    for (const auto& piece : pieces_) {
      each(piece, offset);
      offset += own_bytes(piece);
    }
  }

  // Calls `each` with a chunk's offset in its tensor, its offset in the packed pieces, and its
  // size.
  template <class Each>
  void for_chunks(const Piece& piece, std::size_t offset, const Each& each) const {
    const auto cut = parts_of(piece, element_);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::size_t row = 0; row < cut.outer; ++row)
        each((row * ranks_ + rank) * cut.chunk_bytes,
             rank * bytes_ + offset + row * cut.chunk_bytes, cut.chunk_bytes);
  }

  void put(void* packed) const {
    for_all([&](const Piece& piece, std::size_t offset) {
      transport_.copy(piece.x, at(packed, offset), own_bytes(piece));
    });
  }

  void take(const void* packed) const {
    for_all([&](const Piece& piece, std::size_t offset) {
      transport_.copy(at(packed, offset), piece.y, own_bytes(piece));
    });
  }

  void all_reduce() const {
    void *x = scratch(0, bytes_), *y = scratch(1, bytes_);
    put(x);
    transport_.all_reduce(x, y, count(), reduction());
    take(y);
  }

  void all_gather() const {
    void *x = scratch(0, bytes_), *y = scratch(1, ranks_ * bytes_);
    put(x);
    transport_.all_gather(x, y, count(), 1);
    for_all([&](const Piece& piece, std::size_t offset) {
      for_chunks(piece, offset, [&](std::size_t tensor, std::size_t packed, std::size_t bytes) {
        transport_.copy(at(y, packed), at(piece.y, tensor), bytes);
      });
    });
  }

  void reduce_scatter() const {
    void *x = scratch(0, ranks_ * bytes_), *y = scratch(1, bytes_);
    for_all([&](const Piece& piece, std::size_t offset) {
      for_chunks(piece, offset, [&](std::size_t tensor, std::size_t packed, std::size_t bytes) {
        transport_.copy(at(piece.x, tensor), at(x, packed), bytes);
      });
    });
    transport_.reduce_scatter(x, y, count(), 1, reduction());
    take(y);
  }

  Pieces pieces_;
  const ElementInfo& element_;
  Transport& transport_;
  std::size_t ranks_, bytes_ = 0;
};

// Bytes of the larger of x and y, which pass through a buffer.
std::size_t packed_bytes(const Piece& piece, const ElementInfo& element) {
  const auto bytes = count_of(piece.shape) * element.bytes;
  return piece.node.kind == Kind::AllGather ? bytes * piece.node.group.size() : bytes;
}

void run_alone(const Piece& piece, const ElementInfo& element, Transport& transport) {
  run(piece.node, element, piece.shape, piece.x, piece.y, transport);
}

void run_part(Pieces part, const ElementInfo& element, Transport& transport) {
  if (part.size() > 1) Pack(part, element, transport).run();
  else if (!part.empty()) run_alone(part.front(), element, transport);
}

// Runs groups of adjacent pieces that fit into a buffer.
void run_in_parts(Pieces pieces, const ElementInfo& element, Transport& transport) {
  const auto most = transport.most_packed();
  std::size_t first = 0, bytes = 0;
  for (std::size_t next = 0; next < pieces.size(); ++next) {
    const auto own = packed_bytes(pieces[next], element);
    if (bytes + own > most) {
      run_part(pieces.subspan(first, next - first), element, transport);
      first = next;
      bytes = 0;
    }
    bytes += own;
  }
  run_part(pieces.subspan(first), element, transport);
}

// Runs all pieces in one launch; nothing can be packed or unpacked inside a launch. A piece that
// needs packing runs afterwards.
void run_as_one_launch(Pieces pieces, const ElementInfo& element, Transport& transport) {
  const auto is_in_place = [&](const Piece& piece) {
    return piece.node.kind == Kind::AllReduce ||
           parts_of(piece, element).outer <= transport.most_rows();
  };
  transport.as_one([&] {
    for (const auto& piece : pieces)
      if (is_in_place(piece)) run_alone(piece, element, transport);
  });
  for (const auto& piece : pieces)
    if (!is_in_place(piece)) run_alone(piece, element, transport);
}

}  // namespace

void run_combined(const std::vector<Piece>& pieces, const ElementInfo& element,
                  Transport& transport) {
  if (pieces.front().node.group.size() == 1) {
    for (const auto& piece : pieces) run_alone(piece, element, transport);
  } else if (transport.launches()) {
    run_as_one_launch(pieces, element, transport);
  } else {
    run_in_parts(pieces, element, transport);
  }
}

}  // namespace tensoropt
