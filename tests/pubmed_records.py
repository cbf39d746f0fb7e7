"""Random PubMed records: what a record should come to, and its XML, written side by side from the same draws."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from biorag.types import Snippet

HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January '
    '2025//EN" "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n'
)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
# Pieces of running text: the XML, and what a reader should see.
PIECES = [
    ("asthma", "asthma"),
    ("<i>E. coli</i>", "E. coli"),
    ("<b>bold <i>and</i></b>", "bold and"),
    ("H<sub>2</sub>O", "H2O"),
    ("10<sup>-3</sup>", "10^-3"),
    ("labelled with <sup>14</sup>C", "labelled with 14C"),
    ("&#946;\n\t\t\t<sub>2</sub>-agonist", "β2-agonist"),
    ("<i>Ca</i>\n   <sup>2+</sup> ions", "Ca2+ ions"),
    ("p &lt; 0.05", "p < 0.05"),
    ("R&amp;D", "R&D"),
    ("x &amp;lt; y &amp;gt; z", "x < y > z"),
    ("50&amp;#xa0;mg &amp;beta;-blockers", "50 mg β-blockers"),
    ("AT&amp;T and &amp;copy without its end", "AT&T and &copy without its end"),
    ("two\n\t  lines", "two lines"),
    ("thin\u2009space\u00a0and more", "thin space and more"),
    ("<u>under</u>lined", "underlined"),
    ("cut <!-- a comment --> out", "cut out"),
    ("an <?instruction?> less", "an less"),
    ("<![CDATA[a < b & c]]>", "a < b & c"),
    ("naïve café 中文 𝒳", "naïve café 中文 𝒳"),
    ("<mml:math xmlns:mml='http://www.w3.org/1998/Math/MathML'><mml:mi>x</mml:mi><mml:mn>1</mml:mn></mml:math>", "x1"),
]
SPACES = [" ", " ", "\n", "\n\t\t", "  "]


@dataclass(frozen=True)
class Record:
    """One record: its XML and the snippet that it should come to."""

    xml: str
    snippet: Snippet


def text(random: Random, most: int = 6) -> tuple[str, str]:
    """XML of some running text, and the text."""
    chosen = random.choices(PIECES, k=random.randint(1, most))
    xml = "".join(random.choice(SPACES) + piece for piece, _ in chosen) + random.choice(["", " ", "\n\t"])
    return xml, " ".join(seen for _, seen in chosen)


def date(random: Random, tag: str) -> tuple[str, str]:
    """XML of a date in one of NLM's forms, and the date."""
    year, month, day = random.randint(1950, 2025), random.randint(1, 12), random.randint(1, 28)
    name = random.choice([str(month), f"{month:02}", MONTHS[month - 1]])
    forms = [
        (f"<Year>{year}</Year>", f"{year}"),
        (f"<Year>{year}</Year><Season>Spring</Season>", f"{year}"),
        (f"<Year>{year}</Year><Month>{name}</Month>", f"{year}-{month:02}"),
        (f"<Year>{year}</Year><Month>{name}</Month><Day>{day}</Day>", f"{year}-{month:02}-{day:02}"),
        (f"<Year>{year}</Year><Month>{name}</Month><Day>{day:02}</Day>", f"{year}-{month:02}-{day:02}"),
    ]
    if tag == "PubDate":
        mon = MONTHS[month - 1]
        spans = {
            f"{year} {mon}-{MONTHS[month % 12]}": f"{year}-{month:02}",
            f"{year} {mon} {day}-{day + 3}": f"{year}-{month:02}-{day:02}",
            f"{year} {mon} {day}-{MONTHS[month % 12]} 2": f"{year}-{month:02}-{day:02}",
            f"{year} Dec-{year + 1} Jan": f"{year}-12",
            f"{year}-{year + 1}": f"{year}",
            f"{year} Spring": f"{year}",
            f"Winter {year}": f"{year}",
            f"{year} 1st Quarter": f"{year}",
        }
        forms += [(f"<MedlineDate>{span}</MedlineDate>", found) for span, found in spans.items()]
    xml, found = random.choice(forms if tag == "PubDate" else forms[-2:])
    return f"<{tag}>{xml}</{tag}>", found


def section(random: Random) -> tuple[str, str]:
    """XML of an abstract's section, and its text."""
    xml, seen = text(random, 20)
    attributes, label = random.choice(
        [
            ("", ""),
            ('Label="METHODS"', "METHODS: "),
            ('Label="RESULTS &amp; AIMS" NlmCategory="RESULTS"', "RESULTS & AIMS: "),
            ('Label="OBJECTIVE:" NlmCategory="OBJECTIVE"', "OBJECTIVE: "),
            ('NlmCategory="CONCLUSIONS"', "CONCLUSIONS: "),
            ('NlmCategory="UNASSIGNED"', ""),
            ('Label="UNLABELLED" NlmCategory="UNASSIGNED"', ""),
        ]
    )
    if random.random() < 0.1:
        xml, seen, label = random.choice(["", " \n "]), "", ""
    return f"<AbstractText {attributes}>{xml}</AbstractText>", label + seen


def sections(random: Random, tag: str, attributes: str = "") -> tuple[str, str]:
    """XML of an abstract, and its text."""
    parts = [section(random) for _ in range(random.randint(1, 5))]
    xml = "\n".join(part for part, _ in parts) + random.choice(
        ["", "<CopyrightInformation>© 2020</CopyrightInformation>"]
    )
    return f"<{tag}{attributes}>{xml}</{tag}>", " ".join(seen for _, seen in parts if seen)


def record(random: Random, pmid: int, version: int | None = None) -> Record:
    """One record with whatever features the draws give it."""
    version = version or random.choice([1, 1, 1, 2, 3])
    metadata: dict[str, Any] = {"version": version}
    revised_xml, revised = date(random, "DateRevised") if random.random() < 0.9 else ("", "")
    if revised:
        metadata["revised"] = revised
    title_xml, title = text(random)
    vernacular_xml, vernacular = "", ""
    if random.random() < 0.2:
        title_xml, title = random.choice([("", ""), ("[Not Available].", "[Not Available].")])
        vernacular_xml, vernacular = text(random)
        vernacular_xml = f"<VernacularTitle>{vernacular_xml}</VernacularTitle>"
    abstract_xml, abstract = sections(random, "Abstract") if random.random() < 0.8 else ("", "")
    others = {
        language: sections(random, "OtherAbstract", f' Type="Publisher" Language={quoteattr(language)}')
        for language in random.sample(["fre", "eng", "spa"], random.choice([0, 0, 1, 2, 3]))
    }
    if not abstract:
        english_first = sorted(others, key=lambda language: language != "eng")
        abstract = next((others[language][1] for language in english_first if others[language][1]), "")
    journal_xml, journal = text(random, 2)
    metadata["journal"] = journal
    printed_xml, printed = printed_in(random)
    authors_xml, authors = author_list(random)
    ids_xml, article_ids, identifiers = identified_by(random)
    metadata |= {**printed, **authors, **identifiers}
    date_xml, published = date(random, "PubDate")
    article_date = ""
    if random.random() < 0.1:
        date_xml = "<PubDate><MedlineDate>no date</MedlineDate></PubDate>"
        article_date, published = date(random, "ArticleDate") if random.random() < 0.5 else ("", "")
    if published:
        metadata |= {"year": int(published[:4]), "date": published}
    lists = {
        "language": random.sample(["eng", "fre", "ger"], random.choice([1, 1, 2])),
        "type": random.sample(
            ["Journal Article", "Randomized Controlled Trial", "Research Support, Non-U.S. Gov't", "Review"],
            random.randint(1, 3),
        ),
        "mesh": random.sample(
            ["Asthma", "Humans", "Drug Therapy & Care", "β-Thalassemia", "Adult"], random.randint(0, 5)
        ),
    }
    cited = [random.randint(1, 40_000_000) for _ in range(random.randint(0, 4))]
    listed = [random.randint(1, 40_000_000) for _ in range(random.randint(0, 4))]
    references = list(dict.fromkeys([*listed, *cited]))
    notices_xml, notices = commentary(random)
    if random.random() < 0.1:
        lists["type"].append("Retracted Publication")
    metadata |= {name: values for name, values in {**lists, "references": references, **notices}.items() if values}
    metadata |= {
        "retracted": "Retracted Publication" in lists["type"] or "retraction" in notices,
        "abstract": bool(abstract),
    }
    mesh_xml = "".join(
        f'<MeshHeading><DescriptorName MajorTopicYN="N">{escape(name)}</DescriptorName>'
        "<QualifierName>drug therapy</QualifierName></MeshHeading>"
        for name in lists["mesh"]
    )
    cites = "".join(
        f'<CommentsCorrections RefType="Cites"><PMID Version="1">{id}</PMID></CommentsCorrections>' for id in cited
    )
    reference_xml = "".join(
        f"<Reference><Citation>c</Citation><ArticleIdList><ArticleId IdType='doi'>10.1/{id}</ArticleId>"
        f"<ArticleId IdType='pubmed'>{id}</ArticleId></ArticleIdList></Reference>"
        for id in [*listed, *listed[:1]]
    )
    xml = f"""
  <PubmedArticle>
    <MedlineCitation Status="MEDLINE" Owner="NLM">
      <PMID Version="{version}">{pmid}</PMID>
      {revised_xml}
      <Article PubModel="Print">
        <Journal>{printed_xml["ISSN"]}<JournalIssue CitedMedium="Internet">{printed_xml["Volume"]}{printed_xml["Issue"]}
        {date_xml}</JournalIssue><Title>{journal_xml}</Title>{printed_xml["ISOAbbreviation"]}</Journal>
        <ArticleTitle>{title_xml}</ArticleTitle>
        {printed_xml["Pagination"]}{ids_xml}
        {abstract_xml}
        {authors_xml}
        {"".join(f"<Language>{name}</Language>" for name in lists["language"])}
        <PublicationTypeList>
          {"".join(f"<PublicationType UI='D1'>{escape(name)}</PublicationType>" for name in lists["type"])}
        </PublicationTypeList>
        {vernacular_xml}
        {article_date}
      </Article>
      <MedlineJournalInfo><MedlineTA>Medline Abbrev</MedlineTA></MedlineJournalInfo>
      <CommentsCorrectionsList>{notices_xml}{cites}</CommentsCorrectionsList>
      <MeshHeadingList>{mesh_xml}</MeshHeadingList>
      {"".join(other for other, _ in others.values())}
    </MedlineCitation>
    <PubmedData><History/>
      <ArticleIdList><ArticleId IdType="pubmed">{pmid}</ArticleId>{article_ids}</ArticleIdList>
      <ReferenceList><Title>References</Title><ReferenceList>{reference_xml}</ReferenceList>
        <Reference><ArticleIdList><ArticleId IdType="pubmed">no number</ArticleId></ArticleIdList></Reference>
      </ReferenceList>
    </PubmedData>
  </PubmedArticle>"""
    shown = vernacular or title if title in ("", "[Not Available].") else title
    return Record(xml, Snippet(str(pmid), shown, abstract, pmid, metadata))


def printed_in(random: Random) -> tuple[dict[str, str], dict[str, str]]:
    """XML of a journal's parts and of pages, and what they come to."""
    fields: dict[str, str] = {"journal_abbreviation": "Medline Abbrev"}
    xml = dict.fromkeys(("ISSN", "Volume", "Issue", "ISOAbbreviation", "Pagination"), "")
    named = {"ISSN": "issn", "Volume": "volume", "Issue": "issue", "ISOAbbreviation": "journal_abbreviation"}
    for tag, name in named.items():
        if random.random() < 0.7:
            inner, seen = random.choice([("1533-4406", "1533-4406"), ("12 Suppl 1", "12 Suppl 1"), text(random, 2)])
            xml[tag], fields[name] = f"<{tag}>{inner}</{tag}>", seen
    pages = [
        ("", ""),
        ("<MedlinePgn>284-7</MedlinePgn>", "284-7"),
        ("<StartPage>e1</StartPage><EndPage>e9</EndPage><MedlinePgn>e1-9</MedlinePgn>", "e1-9"),
        ("<StartPage>12</StartPage><EndPage>19</EndPage>", "12-19"),
        ("<StartPage>7</StartPage><MedlinePgn/>", "7"),
        ("<MedlinePgn>1-2; discussion\n 3 &amp; 4</MedlinePgn>", "1-2; discussion 3 & 4"),
    ]
    inner, seen = random.choice(pages)
    xml["Pagination"] = f"<Pagination>{inner}</Pagination>" if inner else ""
    return xml, fields | ({"pages": seen} if seen else {})


# Authors: the XML, the author as metadata has it ("" for none), and whether it is a group.
AUTHORS = [
    ("<LastName>O'Byrne</LastName><ForeName>Paul M</ForeName><Initials>PM</Initials>", "O'Byrne, Paul M", False),
    ("<LastName>van der Berg</LastName><ForeName>Jan-Willem</ForeName>", "van der Berg, Jan-Willem", False),
    ("<LastName>King</LastName><ForeName>M L</ForeName><Suffix>Jr</Suffix>", "King, M L, Jr", False),
    ("<LastName>Ødegård &amp; Søn</LastName><Initials>Å</Initials>", "Ødegård & Søn, Å", False),
    ("<LastName>Suharto</LastName>", "Suharto", False),
    ("<LastName>王</LastName><ForeName>小明</ForeName>", "王, 小明", False),
    ("<LastName>A, B</LastName><ForeName>C,, D</ForeName>", "A B, C D", False),
    (
        "<LastName>{\\textbf{x}} and others</LastName><ForeName>50%_#$^~</ForeName>",
        "{\\textbf{x}} and others, 50%_#$^~",
        False,
    ),
    ("<LastName>TY  - JOUR\nER  -</LastName><ForeName>=1+1</ForeName>", "TY - JOUR ER -, =1+1", False),
    ("<CollectiveName>SYGMA 1 Study Group</CollectiveName>", "SYGMA 1 Study Group", True),
    (
        "<CollectiveName>Members of the X, Y and <i>Z</i> Groups</CollectiveName>",
        "Members of the X, Y and Z Groups",
        True,
    ),
    ("<LastName> </LastName>", "", False),
    ("<Initials>X</Initials><AffiliationInfo><Affiliation>Nowhere</Affiliation></AffiliationInfo>", "X", False),
]


def author_list(random: Random) -> tuple[str, dict[str, list[str]]]:
    """XML of authors, some of them corrected since, and what they come to."""
    chosen = [(*author, random.random() < 0.1) for author in random.choices(AUTHORS, k=random.choice([0, 1, 3, 9]))]
    xml = "".join(f"<Author ValidYN='{'N' if void else 'Y'}'>{inner}</Author>" for inner, _, _, void in chosen)
    names = [name for _, name, _, void in chosen if name and not void]
    groups = list(dict.fromkeys(name for _, name, group, void in chosen if group and not void))
    fields = {"authors": names, "group_authors": groups}
    return f"<AuthorList>{xml}</AuthorList>" * bool(xml), {name: values for name, values in fields.items() if values}


def identified_by(random: Random) -> tuple[str, str, dict[str, str]]:
    """XML of an article's identifiers, in the article and in PubMed's data, and what they come to."""
    located, listed, doi = random.choice(
        [
            ("", "", ""),
            ('<ELocationID EIdType="doi" ValidYN="Y">10.1056/NEJMoa1</ELocationID>', "", "10.1056/NEJMoa1"),
            ('<ELocationID EIdType="doi" ValidYN="N">10.1056/void</ELocationID>', "", ""),
            (
                '<ELocationID EIdType="pii">10.1056/pii</ELocationID>',
                "<ArticleId IdType='doi'>not a DOI</ArticleId>",
                "",
            ),
            (
                "",
                "<ArticleId IdType='doi'>10.1002/(SICI)1&lt;1::AID>3.0.CO;2-#</ArticleId>",
                "10.1002/(SICI)1<1::AID>3.0.CO;2-#",
            ),
        ]
    )
    central, pmcid = random.choice([("", ""), ("PMC12345", "PMC12345"), ("PMC12345.2", "PMC12345"), ("12345", "")])
    listed += f"<ArticleId IdType='pmc'>{central}</ArticleId>" if central else ""
    return located, listed, {name: value for name, value in (("doi", doi), ("pmcid", pmcid)) if value}


def commentary(random: Random) -> tuple[str, dict[str, list[int | str]]]:
    """XML of notices about a record, and what they come to."""
    names = {
        "CommentIn": None,
        "ErratumIn": "errata",
        "CorrectedandRepublishedIn": "errata",
        "ErratumFor": None,
        "RetractionIn": "retraction",
        "RetractionOf": None,
        "RetractedandRepublishedIn": "retraction",
        "ExpressionOfConcernIn": "concern",
    }
    xml, found = "", {}
    for kind in random.choices(list(names), k=random.choice([0, 0, 1, 2])):
        pmid = random.randint(1, 40_000_000)
        source = f"J &amp; K. {pmid}"
        has_pmid = random.random() < 0.7
        inner = f'<PMID Version="1">{pmid}</PMID>' if has_pmid else ""
        xml += f'<CommentsCorrections RefType="{kind}"><RefSource>{source}</RefSource>{inner}</CommentsCorrections>'
        if names[kind]:
            found.setdefault(names[kind], []).append(pmid if has_pmid else f"J & K. {pmid}")
    return xml, found


def deletions(*pmids: int) -> str:
    """XML of the end of an update file."""
    return "<DeleteCitation>" + "".join(f'<PMID Version="1">{pmid}</PMID>' for pmid in pmids) + "</DeleteCitation>"


def file_of(*parts: str) -> bytes:
    """The bytes of a file of these records and deletions."""
    return (HEAD + "<PubmedArticleSet>" + "".join(parts) + "\n</PubmedArticleSet>\n").encode()


def article(
    pmid: int,
    title: str,
    abstract: str = "",
    revised: str = "2024-01-01",
    version: int = 1,
    types: tuple[str, ...] = ("Journal Article",),
    mesh: tuple[str, ...] = (),
    year: int = 2020,
) -> str:
    """XML of a plain record."""
    done = "".join(
        f"<{tag}>{value}</{tag}>" for tag, value in zip(("Year", "Month", "Day"), revised.split("-"), strict=True)
    )
    kinds = "".join(f"<PublicationType>{name}</PublicationType>" for name in types)
    headings = "".join(f"<MeshHeading><DescriptorName>{name}</DescriptorName></MeshHeading>" for name in mesh)
    return (
        f'<PubmedArticle><MedlineCitation><PMID Version="{version}">{pmid}</PMID><DateRevised>{done}</DateRevised>'
        f"<Article><Journal><JournalIssue><PubDate><Year>{year}</Year></PubDate></JournalIssue><Title>J</Title></Journal>"
        f"<ArticleTitle>{title}</ArticleTitle><Abstract><AbstractText>{abstract}</AbstractText></Abstract>"
        f"<PublicationTypeList>{kinds}</PublicationTypeList></Article>"
        f"<MeshHeadingList>{headings}</MeshHeadingList></MedlineCitation></PubmedArticle>\n"
    )
