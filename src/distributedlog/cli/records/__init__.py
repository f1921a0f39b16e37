"""What commands about records share: formats, places, ranges, files of records, figures about them."""
