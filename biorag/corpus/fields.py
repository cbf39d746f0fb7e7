"""What the formats of exports call the fields of a publication: tags, elements and columns, the best first.

RIS: Research Information Systems, as reference managers write it; MEDLINE: MEDLINE/PubMed Data Element (Field)
Descriptions, NLM; Web of Science: Field Tags; EndNote: Refer tags and its XML; Ovid: names of its complete reference.
"""

from __future__ import annotations

from collections.abc import Mapping

Fields = Mapping[str, str]  # of each field the names, separated by spaces (of Ovid's: by bars)

# RIS, MEDLINE, Web of Science, EndNote, BibTeX, CSL-JSON, EndNote's XML.
_TAGS = {
    "title": ("TI T1 CT BT ST", "TI TT BTI", "TI", "%T", "title", "", "titles/title"),
    "abstract": ("AB N2", "AB OAB", "AB", "%X", "abstract", "", "abstract"),
    "authors": ("AU A1", "FAU CN", "AF", "%A", "", "", "contributors/authors/author"),
    "short_authors": ("", "AU CN", "AU", "", "", "", ""),
    "group_authors": ("", "CN", "CA", "", "", "", ""),
    "journal": (
        "JF T2 JO",
        "JT TA",
        "SO",
        "%J %B",
        "journal journaltitle booktitle",
        "container-title",
        "periodical/full-title titles/secondary-title",
    ),
    "journal_abbreviation": (
        "J2 JA JO",
        "TA",
        "JI J9",
        "%O",
        "shortjournal journal-abbreviation abbrev_source_title journal-iso",
        "container-title-short short-container-title journalAbbreviation",
        "periodical/abbr-1 titles/alt-title",
    ),
    "year": ("PY Y1 YR", "", "PY", "%D", "", "", "dates/year"),
    "date": ("DA Y1 PY", "DP", "PD", "%8", "date year", "", "dates/pub-dates/date"),
    "volume": ("VL", "VI", "VL", "%V", "volume", "volume", "volume"),
    "issue": ("IS", "IP", "IS", "%N", "number issue", "issue", "number"),
    "pages": ("PG", "PG", "", "%P", "pages", "page", "pages"),
    "first_page": ("SP", "", "BP", "", "", "", ""),
    "last_page": ("EP", "", "EP", "", "", "", ""),
    "article_number": ("C7 AR", "", "AR", "", "art_number article-number", "number article-number", ""),
    "doi": ("DO L3 M3", "AID LID", "DI", "%R %U", "doi", "DOI", "electronic-resource-num"),
    "pmid": ("PM PMID", "PMID", "PM", "", "pmid pubmed_id", "PMID", ""),
    "embase_pmid": ("C5", "", "", "", "", "", ""),
    "pmcid": ("C2 C7 C8 U1 U2 AN", "PMC", "", "%2", "pmcid pmc", "PMCID", "custom2"),
    "issn": ("SN", "IS", "SN EI", "%@", "issn", "ISSN", "isbn"),
    "language": ("LA", "LA", "LA", "%G", "langid language", "language", "language"),
    "keywords": ("KW DE", "", "DE ID", "%K", "", "", "keywords/keyword"),
    "mesh": ("", "MH", "", "", "", "", ""),
    "type": ("PT M3", "PT", "DT", "%9", "document_type", "", "work-type"),
    "genre": ("TY", "", "", "%0", "ENTRYTYPE", "type", ""),
    "urls": ("UR L1 L2 L3 LK", "", "", "%U", "url", "URL", "urls//url"),
    "notes": ("N1 C2 C3 U1 U2", "", "", "%Z %M", "note", "note", "notes custom1"),
    "accession": ("AN", "", "", "%M", "", "", "accession-num"),
    "database": ("DB DP", "", "", "%W %~", "", "", "remote-database-name remote-database-provider"),
    "revised": ("", "LR", "", "", "", "", ""),
    "retraction": ("", "RIN", "", "", "", "", ""),
    "errata": ("", "EIN CRI", "", "", "", "", ""),
    "concern": ("", "ECI", "", "", "", "", ""),
}
RIS, MEDLINE, WEB_OF_SCIENCE, ENDNOTE, BIBTEX, CSL, ENDNOTE_XML = (
    {field: names[number] for field, names in _TAGS.items() if names[number]} for number in range(7)
)
OVID: Fields = {
    "title": "Title|TITLE|TI",
    "abstract": "Abstract|ABSTRACT|AB",
    "authors": "Author|Authors|AUTHOR NAMES|AU",
    "published_in": "Source|SOURCE|SO",
    "journal": "Journal Name|JOURNAL NAME|JN",
    "year": "Year of Publication|Date of Publication|Publication Date|PUBLICATION YEAR|YR|Status",
    "volume": "Volume|VOLUME|VO",
    "issue": "Issue|Issue Part|ISSUE|IP",
    "pages": "Page|Pages|PG",
    "doi": "DOI Number|DOI|DI|DO|Digital Object Identifier|Link to the Ovid Full Text or citation",
    "pmid": "PMID|PubMed ID|Unique Identifier|PM",
    "pmcid": "PMC Identifier",
    "issn": "ISSN|ISSN Print|ISSN (print)|IS",
    "language": "Language|LANGUAGE|LG",
    "keywords": "Author Keywords|Keyword Heading|Keywords|AUTHOR KEYWORDS|KW",
    "type": "Document Type|DT|Publication Type|PUBLICATION TYPE|PT",
    "urls": "MEDLINE PMID",
    "accession": "Accession Number",
    "database": "Database",
}
# The `meta` fields of web pages, in small letters: those that Google Scholar asks for, PRISM's and Dublin Core's.
WEB_PAGE: Fields = {
    "title": "citation_title dc.title",
    "authors": "citation_author citation_authors dc.creator",
    "journal": "citation_journal_title prism.publicationname dc.ispartof dc.relation.ispartof",
    "journal_abbreviation": "citation_journal_abbrev",
    "date": "citation_publication_date citation_date citation_year prism.publicationdate citation_online_date dc.date "
    "dc.date.issued dc.issued",
    "volume": "citation_volume prism.volume",
    "issue": "citation_issue prism.number",
    "first_page": "citation_firstpage",
    "last_page": "citation_lastpage",
    "doi": "citation_doi prism.doi dc.identifier",
    "pmid": "citation_pmid",
}
# Headers by which a column is known, in small letters and digits alone.
COLUMNS: Fields = {
    "id": "id docid documentid snippetid recordid pmid pubmedid doi",
    "title": "title articletitle documenttitle papertitle primarytitle titleprimary itemtitle displayname",
    "content": "content contents abstract abstracttext text body passage abstractnote summary",
    "PMID": "pmid pubmedid pubmed medlinepmid idspmid externalidspubmed",
    "authors": "authorfullnames authors author authornames authorstring firstauthors authorsprimary "
    "authorshipsauthordisplayname",
    "group_authors": "groupauthors",
    "journal": "journal journalbook journaltitle publicationtitle sourcetitle secondarytitle publicationname "
    "periodicalfull primarylocationsourcedisplayname",
    "journal_abbreviation": "journalabbreviation abbreviatedsourcetitle shortjournal periodicalabbrev",
    "year": "year publicationyear pubyear publishedyear",
    "date": "date publicationdate datepublished firstpublicationdate",
    "keywords": "keywords authorkeywords manualtags",
    "doi": "doi itemdoi externalidsdoi doilink",
    "pmcid": "pmcid idspmcid",
    "volume": "volume journalvolume bibliovolume",
    "issue": "issue journalissue issuenumber biblioissue",
    "pages": "pages pagination pageinfo",
    "first_page": "startpage pagestart firstpage bibliofirstpage",
    "last_page": "endpage pageend lastpage bibliolastpage otherpages",
    "article_number": "articlenumber artno",
    "issn": "issn issns",
    "retracted": "retracted isretracted",
    "language": "language",
    "type": "publicationtype itemtype documenttype type",
    "genre": "referencetype typeofreference",
    "mesh": "mesh meshterms",
}
_ZOTERO = {
    "keywords": "manualtags automatictags",
    "": "key dateadded datemodified accessdate librarycatalog fileattachments linkattachments",
}
_NAMES = {"abstract": "content", "pmid": "PMID"}  # of fields of tables
_TAB_DELIMITED = {_NAMES.get(field, field): tags.lower() for field, tags in WEB_OF_SCIENCE.items() if field != "date"}
# Exports whose header is known: the columns that tell it, and what its columns are in place of what they seem to be;
# one that is no field of the paper is named under "".
EXPORTS: tuple[tuple[str, Fields], ...] = (
    ("key itemtype", _ZOTERO),
    ("key pubmedid pmcid", {"pmcid": "pmcid"}),  # Rayyan
    ("source id pageinfo", {"accession": "id", "database": "source"}),  # Europe PMC
    ("publicationtype utuniquewosid", {"type": "documenttype"}),  # Web of Science, as a spreadsheet
    ("authornames source", {"published_in": "source"}),  # Embase
    ("source pubmedid", {"published_in": "source"}),  # CENTRAL
    ("citationcount venue", {"journal": "venue"}),  # Semantic Scholar, Elicit
    ("authors publication publisher volume", {"journal": "publication"}),  # Google Scholar
    ("authors category publication", {"journal": "publication"}),  # IEEE Computer Society
    ("citation firstauthor journalbook", {"published_in": "citation"}),  # PubMed
    ("pt ti so", {**_TAB_DELIMITED, "issn": "sn"}),  # Web of Science
)
